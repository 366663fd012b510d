"""What every test runs under: one thread for arithmetic, offscreen rendering, reproducible property tests."""

from __future__ import annotations

from simgap.compute.machine import apply_environment, worker_environment

apply_environment(worker_environment(threads=1))  # before anything loads numpy, torch or a GL driver

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "simgap", deadline=None, derandomize=True, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", parent=settings.get_profile("simgap"), derandomize=False, max_examples=500
)
# `pytest --hypothesis-profile thorough` looks for longer, and elsewhere each time
settings.load_profile("simgap")
