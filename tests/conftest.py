"""For all tests: no verdict depends on how busy the machine is, and what takes long begins first."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TAKES_LONG = (
    "real",
    "bench",
    "test_workers_serve.py",
    "test_tune_command.py",
    "test_demo.py",
    "test_bench_command.py",
    "faults",
    "wire",
)
"""Files and folders, longest first: two workers that share out files would else wait for one of them at the end."""

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort files by how long they take; within a file nothing moves."""
    items.sort(key=lambda item: _rank(item.path))


def _rank(file: Path) -> int:
    parts = file.parts[-3:]
    return next((rank for rank, name in enumerate(TAKES_LONG) if name in parts), len(TAKES_LONG))
