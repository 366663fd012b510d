"""What every test runs under: one thread for arithmetic, offscreen rendering, reproducible property tests."""

from __future__ import annotations

from simgap.machine import apply_environment, worker_environment

apply_environment(worker_environment(threads=1))  # before anything loads numpy, torch or a GL driver

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("simgap", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("simgap")
