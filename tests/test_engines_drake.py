"""The second engine: the same world moved by Drake, bit for bit the same for the same seed, and honest about what it cannot take over."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest

from simgap.envs import make_env
from simgap.envs._mujoco import mujoco
from simgap.envs.arm.pick import ArmPickEnv
from simgap.envs.engines.mjcf import compile_with_source, named_mjcf, source_of
from simgap.errors import MachineError, UsageError
from simgap.provenance import child_rng
from simgap.teachers import Abstain, make_teacher

needs_drake = pytest.mark.skipif(
    importlib.util.find_spec("pydrake") is None,
    reason="pydrake is not installed: pip install 'simgap[drake]'",
)


def _env(name: str = "arm-pick", engine: str = "drake") -> Any:
    return make_env(name, image_size=16, render=False, engine=engine)


def _solve(env: Any, seed: int, preset: str = "nominal", steps: int = 1000) -> tuple[str, bytes]:
    """Return how the teacher's episode ended, cut short after some steps, and every position on the way."""
    teacher = make_teacher(env)
    values = env.factor_space.sample(env.presets[preset], child_rng(seed, "factors"))
    env.reset(seed=seed, options={"factors": values})
    path = []
    for _ in range(steps):
        label = teacher.label()
        if isinstance(label, Abstain):
            return label.reason, b"".join(path)
        info = env.step(label)[4]
        path.append(env.world.data.qpos.tobytes())
        if "outcome" in info:
            return str(info["outcome"]), b"".join(path)
    return "cut short", b"".join(path)


@needs_drake
@pytest.mark.parametrize("name", ["arm-pick", "arm-place", "arm-pass", "car-goal"])
def test_the_teacher_solves_the_task_on_drake(name: str) -> None:
    assert _solve(_env(name), 1)[0] == "success"


@needs_drake
@pytest.mark.parametrize(("name", "preset"), [("arm-pick", "wide"), ("car-goal", "shifted")])
@pytest.mark.slow
def test_an_episode_on_drake_knows_nothing_of_the_one_before(name: str, preset: str) -> None:
    env = _env(name)
    forward = [_solve(env, seed, preset, 12) for seed in (0, 1)]
    backward = [_solve(env, seed, preset, 12) for seed in (1, 0)]
    assert forward == backward[::-1]
    assert forward[1] == _solve(_env(name), 1, preset, 12)
    assert forward[0] != forward[1]


@needs_drake
def test_a_snapshot_on_drake_goes_on_as_if_nothing_had_happened() -> None:
    env = _env()
    teacher = make_teacher(env)
    env.reset(seed=3)
    for _ in range(14):
        env.step(teacher.label())
    saved = env.snapshot()

    def rest() -> list[bytes]:
        path = []
        for _ in range(12):
            env.step(teacher.label())
            path.append(
                env.world.data.qpos.tobytes()
                + env.world.data.qvel.tobytes()
                + np.float64(env.world.gripper_torque()).tobytes()
            )
        return path

    first = rest()
    env.restore(saved)
    assert rest() == first


@needs_drake
def test_the_stamps_tell_the_engines_apart_and_keep_the_renderer() -> None:
    one, two = (_env(engine=engine).stamp_fields() for engine in ("mujoco", "drake"))
    assert one["engine"].startswith("mujoco ")
    assert two["engine"].startswith("drake 1.")
    assert {k: v for k, v in one.items() if k != "engine"} == {k: v for k, v in two.items() if k != "engine"}


@needs_drake
@pytest.mark.slow
def test_an_advance_takes_the_same_steps_whole_or_in_parts() -> None:
    ends = []
    for parts in ([0.5], [0.05] * 10, [0.005] * 100):
        env = _env()
        env.reset(seed=0)
        env.world.command(env.world.rest_command() + np.array([20.0, 0, 0, 0, 0, -30.0]))
        for part in parts:
            env.world.engine.advance(part)
        ends.append(env.world.data.qpos.tobytes())
    assert ends[0] == ends[1] == ends[2]


@needs_drake
def test_a_time_that_is_no_whole_number_of_steps_is_refused() -> None:
    env = _env()
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"whole number of Drake's 0\.005 s steps"):
        env.world.engine.advance(0.0125)


def _awake_and_asleep() -> list[Any]:
    from simgap.envs.engines.drake import DrakeEngine

    return [
        ArmPickEnv(image_size=16, render=False, engine=partial(DrakeEngine, sleep=sleep))
        for sleep in (False, True)
    ]


@needs_drake
@pytest.mark.slow
def test_cubes_that_sleep_change_nothing_that_the_arm_does() -> None:
    for seed in (0, 5):
        ends = []
        for env in _awake_and_asleep():
            outcome, path = _solve(env, seed)
            ends.append((outcome, np.frombuffer(path).reshape(-1, env.world.model.nq)))
        assert ends[0][0] == ends[1][0] == "success"
        assert ends[0][1].shape == ends[1][1].shape
        np.testing.assert_allclose(ends[0][1][:, :6], ends[1][1][:, :6], atol=2e-3)
        np.testing.assert_allclose(ends[0][1][-1], ends[1][1][-1], atol=5e-3)


@needs_drake
@pytest.mark.slow
def test_a_sleeping_cube_still_touches_the_table_and_wakes_when_another_comes() -> None:
    env = _awake_and_asleep()[1]
    env.reset(seed=0)
    world = env.world
    world.engine.advance(1.0)
    assert set(world.cube_body) <= world.engine._sleep._night.asleep
    assert list(world.engine.touching(world.cube_geom[1])) == [world.table]
    before = world.cube_position(1).copy()
    # the target falls on the edge of the first distractor
    world.data.qpos[world.cube_qpos[0] : world.cube_qpos[0] + 3] = before + np.array([0.010, 0.0, 0.50])
    world.engine.reset()
    world.engine.advance(0.2)
    assert world.cube_body[1] in world.engine._sleep._night.asleep
    world.engine.advance(0.05)
    assert world.cube_body[1] not in world.engine._sleep._night.asleep
    world.engine.advance(1.5)
    assert np.linalg.norm(world.cube_position(1) - before) > 1e-3
    assert set(world.cube_body) <= world.engine._sleep._night.asleep  # all at rest again
    assert min(world.cube_position(cube)[2] for cube in range(3)) > 0.0115


@needs_drake
def test_what_moves_slowly_is_not_put_to_sleep() -> None:
    env = _awake_and_asleep()[1]
    env.reset(seed=0)
    world = env.world
    world.data.qpos[world.cube_qpos[0] + 2] += 0.30
    world.engine.reset()
    world.engine.advance(0.2)
    assert world.cube_body[0] not in world.engine._sleep._night.asleep
    assert world.data.qvel[8] == pytest.approx(-9.81 * 0.2, rel=1e-3)


@needs_drake
def test_siblings_on_drake_move_apart() -> None:
    env = _env()
    twin = env.sibling()
    env.reset(seed=0)
    twin.reset(seed=0)
    env.step(np.array([30.0, -45, 45, 75, 0, 60], dtype=np.float32))
    assert twin.world.encoders()[0] == pytest.approx(0.0, abs=1e-6)
    assert env.world.encoders()[0] > 3.0


@needs_drake
def test_contacts_and_torques_come_from_drake() -> None:
    env = _env()
    env.reset(seed=0)
    world = env.world
    table, cube = world.table, world.cube_geom[0]
    assert table in world.engine.touching(cube)
    assert cube in world.engine.touching(table)
    world.engine.advance(1.0)
    for joint in (1, 2, 3):  # at rest a servo gives what gravity takes
        assert world.engine.servo_torque(joint) == pytest.approx(
            float(world.engine.bias_torque()[joint]), abs=2e-4
        )


@needs_drake
def test_before_the_first_step_a_servo_gives_what_its_formula_says() -> None:
    env = _env()
    env.reset(seed=0)
    world = env.world
    world.engine.reset()
    world.data.ctrl[1] += 0.05
    assert world.engine.servo_torque(1) == pytest.approx(
        20.0 * (world.data.ctrl[1] - world.data.qpos[1]) - 2.0 * world.data.qvel[1]
    )
    world.data.ctrl[5] -= 1.0
    assert world.engine.servo_torque(5) == pytest.approx(-0.4)


@needs_drake
@pytest.mark.parametrize(
    ("factor", "value", "read"),
    [
        ("cube_mass_kg", 0.08, lambda plant, context: plant.GetBodyByName("target").get_mass(context)),
        ("target_size_m", 0.030, lambda plant, context: _edge(plant, context)),
    ],
)
def test_factors_reach_drake(factor: str, value: float, read: Callable[[Any, Any], float]) -> None:
    env = _env()
    engine = env.world.engine
    for given in (value, env.factor_space.nominal()[factor], value):
        env.reset(seed=0, options={"factors": {factor: given}})
        assert read(engine._plant.plant, engine._context) == pytest.approx(given)


def _edge(plant: Any, context: Any) -> float:
    inspector = plant.get_geometry_query_input_port().Eval(context).inspector()
    shape = next(
        inspector.GetShape(g) for g in plant.GetCollisionGeometriesForBody(plant.GetBodyByName("target"))
    )
    return float(shape.width())


@needs_drake
@pytest.mark.slow
def test_a_weak_servo_droops_more() -> None:
    droops = []
    for gain in (1.0, 0.5):
        env = _env()
        env.reset(seed=0, options={"factors": {"actuator_gain": gain}})
        env.world.engine.advance(3.0)
        droops.append(float(env.world.data.ctrl[2] - env.world.data.qpos[2]))
    assert droops[1] == pytest.approx(2 * droops[0], rel=0.02)


def _model(**changes: Any) -> Any:
    """Return a hinge with a servo, changed."""
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="arm")
    joint = body.add_joint(name="hinge", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0])
    body.add_geom(name="rod", type=mujoco.mjtGeom.mjGEOM_BOX, size=[0.1, 0.01, 0.01], mass=0.1)
    servo = spec.add_actuator(
        name="servo",
        target="hinge",
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        forcelimited=True,
        forcerange=changes.pop("range", [-1, 1]),
    )
    servo.set_to_position(kp=changes.pop("kp", 5.0))
    for name, value in changes.items():
        setattr(joint, name, value)
    return compile_with_source(spec)


@needs_drake
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frictionloss": 0.1}, "dry friction"),
        ({"range": [-1, 2]}, "another force limit each way"),
        ({"kp": -5.0}, "pushes away from its target"),
    ],
)
def test_what_drake_would_lose_is_an_error_and_not_a_silence(changes: dict[str, Any], said: str) -> None:
    from simgap.envs.engines.drake import DrakeEngine

    model = _model(**changes)
    with pytest.raises(UsageError, match=said):
        DrakeEngine(model, mujoco.MjData(model))


@needs_drake
def test_a_field_that_drake_reads_once_may_not_change_later() -> None:
    from simgap.envs.engines.drake import DrakeEngine

    model = _model()
    data = mujoco.MjData(model)
    engine = DrakeEngine(model, data)
    engine.reset()
    model.jnt_range[0] = -0.1, 0.1
    with pytest.raises(UsageError, match="changed the model's jnt_range"):
        engine.reset()


def test_a_tendon_is_refused_by_name() -> None:
    spec = mujoco.MjSpec()
    for name in ("a", "b"):
        body = spec.worldbody.add_body(name=name)
        body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE)
        body.add_geom(size=[0.1, 0.1, 0.1])
    spec.add_equality(
        name="same", type=mujoco.mjtEq.mjEQ_JOINT, objtype=mujoco.mjtObj.mjOBJ_JOINT, name1="a", name2="b"
    )
    with pytest.raises(UsageError, match="<equality>"):
        named_mjcf(compile_with_source(spec))


def test_a_model_carries_its_source_and_one_without_says_so() -> None:
    spec = mujoco.MjSpec()
    spec.worldbody.add_body(name="a").add_geom(size=[0.1, 0.1, 0.1])
    model = compile_with_source(spec)
    assert '<body name="a">' in source_of(model)
    assert mujoco.MjModel.from_xml_string(source_of(model)).nbody == 2
    plain = mujoco.MjSpec()
    with pytest.raises(UsageError, match="compile_with_source"):
        source_of(plain.compile())


def test_names_follow_mujocos_ids_whatever_bodies_and_geoms_are_called() -> None:
    env = ArmPickEnv(image_size=16, render=False)
    named = named_mjcf(env.world.model)
    assert len(named.bodies) == env.world.model.nbody
    assert named.bodies[env.world.cube_body[1]] == "distractor1"
    again = mujoco.MjModel.from_xml_string(named.xml)  # still a model, with the geoms in their order
    assert [again.geom(name).id for name in named.geoms] == list(range(env.world.model.ngeom))
    np.testing.assert_allclose(again.geom_size, env.world.model.geom_size, atol=1e-6)
    np.testing.assert_allclose(again.body_mass, env.world.model.body_mass, rtol=1e-5)


@needs_drake
def test_the_pairs_that_may_collide_are_those_of_mujoco() -> None:
    from simgap.envs.engines.drake_plant import colliding

    for name in ("arm-pick", "car-goal"):
        env = _env(name)
        env.reset(seed=0)
        model, data, pairs = env.world.model, env.world.data, colliding(env.world.model)
        seen = set()
        for seed in range(40):  # things thrown into each other: no pair that MuJoCo reports may be missing
            rng = np.random.default_rng(seed)
            data.qpos[:] = rng.uniform(-0.05, 0.05, model.nq) + (model.qpos0 if seed % 2 else 0.0)
            mujoco.mj_normalizeQuat(model, data.qpos)
            mujoco.mj_forward(model, data)
            seen |= {tuple(sorted((int(a), int(b)))) for a, b in data.contact.geom}
        assert seen
        assert all(pairs[a, b] for a, b in seen)
        assert not pairs[np.diag_indices(model.ngeom)].any()
        query = env.world.engine._plant.plant.get_geometry_query_input_port().Eval(env.world.engine._context)
        geometries = env.world.engine._plant.geometries
        for a in geometries:
            for b in geometries:
                if (
                    a < b
                    and model.body_weldid[model.geom_bodyid[a]] + model.body_weldid[model.geom_bodyid[b]] > 0
                ):
                    assert query.inspector().CollisionFiltered(geometries[a], geometries[b]) != pairs[a, b]


@pytest.mark.slow
def test_a_missing_pydrake_is_one_line_that_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['pydrake'] = None\n"
        "from simgap.envs import make_env\n"
        "from simgap.errors import MachineError\n"
        "try:\n    make_env('arm-pick', image_size=16, render=False, engine='drake')\n"
        "except MachineError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "engine drake needs pydrake, which is not installed: pip install 'simgap[drake]'\n"


def test_a_screen_on_another_engine_is_evidence_of_another_kind() -> None:
    from simgap.provenance import Stamp, assumptions
    from simgap.rollouts.screen import ScreenReport
    from simgap.types import EvidenceKind

    def report(engine: str) -> ScreenReport:
        stamp = Stamp(kind="rollouts", fields={"engine": engine, "renderer": "mujoco opengl"})
        nothing: dict[str, Any] = {f.name: None for f in fields(ScreenReport)}
        return ScreenReport(**(nothing | {"stamp": stamp}))

    one, two = (
        report("mujoco 4.0.0 implicitfast 0.0025s"),
        report("drake 1.51.1 lagged sap, hydroelastic 0.005s"),
    )
    assert (one.evidence, two.evidence) == (EvidenceKind.SIM, EvidenceKind.SECOND_ENGINE)
    assert assumptions(one.stamp) & assumptions(two.stamp) == {"renderer=mujoco opengl"}


def test_an_unknown_engine_or_renderer_is_told_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="did you mean 'drake'"):
        make_env("arm-pick", engine="drakee")
    with pytest.raises(UsageError, match="known: filament, opengl"):
        make_env("arm-pick", render=False, renderer="vulkan")


def _refusal() -> str:
    """Return why Filament cannot draw here, or nothing."""
    try:
        make_env("arm-pick", image_size=32, render=False, renderer="filament")
    except MachineError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_filament_draws_the_same_bytes_for_the_same_state_or_says_why_not() -> None:
    refusal = _refusal()
    if refusal:
        assert "apt-get install libvulkan1" in refusal
        assert "\n" not in refusal
        pytest.skip(refusal)
    env = make_env("arm-pick", image_size=96, renderer="filament")
    first, other = env.reset(seed=0)[0]["front"].copy(), env.reset(seed=1)[0]["front"].copy()
    assert np.array_equal(env.reset(seed=0)[0]["front"], first)
    assert not np.array_equal(first, other)
    plain = make_env("arm-pick", image_size=96)
    drawn = plain.reset(seed=0)[0]["front"]
    places = [
        np.argwhere(f[..., 0] > 2.5 * np.maximum(f[..., 1], f[..., 2]).astype(float)).mean(axis=0)
        for f in (first, drawn)
    ]
    np.testing.assert_allclose(places[0], places[1], atol=1.0)  # the red cube is in the same place
    assert env.stamp_fields()["renderer"] != plain.stamp_fields()["renderer"]
    env.close()
    plain.close()
