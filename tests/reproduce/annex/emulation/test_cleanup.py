"""However an emulation ends, it ends soon and leaves no process, namespace or interface behind."""

import os
import signal
from pathlib import Path

import pytest

from tests.marks import by_default
from tests.processes import Program, wait_for
from tests.reproduce.annex.emulation.conftest import interfaces, namespace
from tests.reproduce.annex.emulation.jobs import RANKS


class Emulated(Program):
    """An emulation that lasts."""

    def __init__(self, folder, *arguments):
        super().__init__(folder, "-m", "tests.reproduce.annex.emulation.jobs", *arguments)

    def in_namespaces(self):
        """Its processes in network namespaces of their own: the ranks, and what holds the network."""
        spaces = {pid: namespace(pid) for pid in self.processes()}
        return {pid: space for pid, space in spaces.items() if space not in ("", namespace(os.getpid()))}

    def fabric(self):
        """The process that holds the network."""
        (pid,) = (
            pid for pid in self.in_namespaces() if b"fabric.py" in (Path("/proc") / str(pid) / "cmdline").read_bytes()
        )
        return pid

    def wait_for_ranks(self):
        """Return when every rank is in a namespace of its own."""
        wait_for(lambda: self.process.poll() is not None or len(set(self.in_namespaces().values())) == RANKS + 1)


@pytest.fixture
def start(able, tmp_path):
    """Starts an emulation; after the test nothing may be left of it: its namespaces live as long as its processes."""
    before, programs = interfaces(), []

    def started(*arguments):
        programs.append(Emulated(tmp_path, *arguments))
        programs[0].wait_for_ranks()
        return programs[0]

    yield started
    with programs[0] as program:
        program.wait_until_gone()
        assert interfaces() == before


@pytest.mark.parametrize(
    ("number", "code"), by_default([(signal.SIGINT, 130), (signal.SIGTERM, 143)], (signal.SIGINT, 130))
)
def test_a_stopped_run(number, code, start):
    run = start()
    run.signal_group(number)  # as a terminal does
    assert run.wait() == code
    assert run.stderr == "lasting: interrupted\n"
    assert not run.temporary_files()


@pytest.mark.slow
def test_a_killed_run(start):
    run = start()
    run.process.kill()
    run.wait()


@pytest.mark.slow
def test_a_killed_rank(start):
    run = start()
    os.kill(max(run.in_namespaces().keys() - {run.fabric()}), signal.SIGKILL)
    run.wait()
    assert "was killed by SIGKILL" in run.stderr
    assert not run.temporary_files()


@pytest.mark.slow
def test_a_dropped_link(start):
    run = start("12")
    os.kill(run.fabric(), signal.SIGKILL)  # with the process that holds them, all links go
    run.wait()
    assert "the whole emulated network went down" in run.stderr
    assert not run.temporary_files()
