"""What all tests need before the first of them imports a kernel."""

import gc
import os
import signal
import sys

# Containers often set this. Every program that a test starts, and each rank, would then compile the project's modules
# again, half a second at a time, and pytest its tests.
if os.environ.get("PYTHONDONTWRITEBYTECODE") == "1":
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    sys.dont_write_bytecode = False

import pytest
import torch

if not torch.cuda.is_available():  # Triton's kernels run through its interpreter, which is chosen at their import
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell without job control starts what runs in its background with SIGINT ignored, which every program that a test
# starts would inherit: Ctrl-C would do nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# With a process of tests on each core, further threads of one process wait for one another in loops: ten times the
# processor's time. Ranks set their own number.
torch.set_num_threads(1)

# A fifth of the tests' time would otherwise go into looking for garbage among the million objects of imported modules.
gc.set_threshold(20_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Three workers on two cores: many tests wait for processes of their own, whose start and end leave a core idle."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return 3 if cores == 2 and "PYTEST_XDIST_AUTO_NUM_WORKERS" not in os.environ else None  # None: as xdist does


def pytest_collection_finish():
    """No garbage is looked for among what is there by now, which takes half a second where a test asks for it."""
    gc.freeze()


@pytest.fixture
def own_registry(monkeypatch):
    """What a file registers is known in one test only."""
    from ptdp_core.schedules import build, registry

    monkeypatch.setattr(registry, "DEFINITIONS", dict(registry.DEFINITIONS))
    yield
    build.cache_clear()
