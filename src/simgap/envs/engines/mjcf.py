"""MJCF for another engine's parser: carried by the compiled model, every body, joint and geom named, what is set separately taken out.

A parser that meets what it does not know usually says so in a log and goes on without it. Here everything
that is set explicitly afterwards is taken out beforehand, so that whatever the parser still complains about
is a real loss and an error.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from simgap.envs._mujoco import mujoco
from simgap.errors import UsageError

_LOOKS = ("visual", "asset", "statistic", "custom", "size", "keyframe", "sensor")
"""Sections without mechanics."""
_OTHERS = ("tendon", "equality", "deformable")
"""Sections with mechanics that are not carried over: their presence is an error, not a silent loss."""
_SET_LATER = {"actuator": "servos", "contact": "collision filters"}


_SOURCE = "mjcf"
"""Name of the text element that holds the source."""


def compile_with_source(spec: Any) -> Any:
    """Return the compiled ``mujoco.MjModel`` of a ``MjSpec``, with the MJCF it was compiled from in a text element of its own."""
    spec.compile()
    spec.add_text(name=_SOURCE, data=spec.to_xml())
    return spec.compile()


def source_of(model: Any) -> str:
    """Return the MJCF that a model of :func:`compile_with_source` was compiled from.

    Raises:
        UsageError: the model carries none.
    """
    index = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_TEXT, _SOURCE)
    if index < 0:
        raise UsageError(
            "the model does not carry its MJCF, which a second engine parses; compile it with"
            " compile_with_source(spec)"
        )
    start = int(model.text_adr[index])
    return str(model.text_data[start : start + int(model.text_size[index]) - 1].decode())


@dataclass(frozen=True, slots=True)
class NamedMjcf:
    """A model for a foreign parser, and the names that tie it to MuJoCo's ids."""

    xml: str
    bodies: tuple[str, ...]
    """Body name of every MuJoCo body id; the world first."""
    joints: tuple[str, ...]
    """Joint name of every MuJoCo joint id."""
    geoms: tuple[str, ...]
    """Geom name of every MuJoCo geom id."""


def named_mjcf(model: Any) -> NamedMjcf:
    """Return the MJCF that a model was compiled from, named and reduced to bodies, joints, inertias and shapes.

    Raises:
        UsageError: the model carries no MJCF, or uses what is not carried over (tendons, equalities,
            deformables).
    """
    root = ET.fromstring(source_of(model))
    for section in list(root):
        if section.tag in _OTHERS and len(section):
            raise UsageError(
                f"the model has <{section.tag}>, which no second engine takes over; use engine mujoco, or"
                " model it with joints and servos"
            )
        if section.tag in _LOOKS or section.tag in _SET_LATER or section.tag == "option":
            root.remove(section)
    world = root.find("worldbody")
    if world is None:
        raise UsageError("the model's MJCF has no <worldbody>")
    bodies = _name_bodies(world, model)
    joints, geoms = (
        _name_children(world, ("joint", "freejoint"), "joint", model.njnt),
        _name_children(world, ("geom",), "geom", model.ngeom),
    )
    for geom in world.iter("geom"):
        _strip_contact(geom)
    return NamedMjcf(ET.tostring(root, encoding="unicode"), bodies, joints, geoms)


def _name_bodies(world: ET.Element, model: Any) -> tuple[str, ...]:
    """Name bodies in MuJoCo's order, depth first, and take out what has no mechanics."""
    elements = [element for element in world.iter() if element.tag in ("worldbody", "body")]
    if len(elements) != model.nbody:
        raise UsageError(
            f"the MJCF has {len(elements) - 1} bodies and the model {model.nbody - 1}; compile it with"
            " compile_with_source(spec)"
        )
    for index, element in enumerate(elements):
        for child in list(element):
            if child.tag in ("site", "camera", "light"):
                element.remove(child)
        if element.tag == "body":
            element.set("name", element.get("name") or f"body_{index}")
            theirs = model.body(index).name or f"body_{index}"
            if element.get("name") != theirs:
                raise UsageError(
                    f"body {index} is {element.get('name')!r} in the MJCF and {theirs!r} in the model;"
                    " compile it with compile_with_source(spec)"
                )
    return ("world", *(str(element.get("name")) for element in elements[1:]))


def _name_children(world: ET.Element, tags: tuple[str, ...], kind: str, count: int) -> tuple[str, ...]:
    """Give names of our own, in MuJoCo's order, body by body: a joint or a geom may be called like its body, and may have no name."""
    names: list[str] = []
    for body in (element for element in world.iter() if element.tag in ("worldbody", "body")):
        for child in (child for child in body if child.tag in tags):
            names.append(f"{kind}_{len(names)}")
            child.set("name", names[-1])
    if len(names) != count:
        raise UsageError(
            f"the MJCF has {len(names)} {kind}s and the model {count}; compile it with"
            " compile_with_source(spec)"
        )
    return tuple(names)


def _strip_contact(geom: ET.Element) -> None:
    """Take out contact parameters that are set separately, or have no counterpart and are declared."""
    for key in ("condim", "solref", "solimp", "priority", "solmix", "margin", "gap", "group", "material"):
        geom.attrib.pop(key, None)
    if int(geom.get("contype", "1")) or int(geom.get("conaffinity", "1")):
        geom.attrib.pop("contype", None)
        geom.attrib.pop("conaffinity", None)
    if "friction" in geom.attrib:
        geom.set("friction", geom.attrib["friction"].split()[0])
