"""However an emulation ends, it ends soon and leaves no process, namespace or interface behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptdp_core.emulation import LinkError, emulate
from ptdp_core.launch.local import RankError
from ptdp_core.simulator import load_cluster
from tests.processes import descendants, processes
from tests.ptdp_core.emulation.conftest import interfaces, namespace
from tests.ptdp_core.emulation.jobs import LARGE, config

ROOT = Path(__file__).parents[3]
SOON = 60  # seconds, on a busy machine
RANKS = 4


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ranks_of(root: int) -> list[int]:
    """Processes of an emulation that are in a namespace of their own: its ranks."""
    ours = namespace(os.getpid())
    return [pid for pid in descendants(root) if namespace(pid) not in ("", ours) and not is_fabric(pid)]


def is_fabric(pid: int) -> bool:
    try:
        return "fabric.py" in (Path("/proc") / str(pid) / "cmdline").read_text()
    except OSError:
        return False


class Emulated:
    """The processes and namespaces of a running emulation below `root`; others may run on this machine."""

    def __init__(self, root: int) -> None:
        ranks = ranks_of(root)
        self.processes = {*ranks, *filter(is_fabric, descendants(root))}
        self.namespaces = {namespace(pid) for pid in self.processes}
        self.interfaces = interfaces()
        assert len(self.namespaces) == RANKS + 1

    def is_gone(self) -> bool:
        """Whether no process of it is left, and none in its namespaces, which nothing else keeps alive."""
        return not self.processes & processes().keys() and not any(
            namespace(pid) in self.namespaces for pid in processes()
        )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill -9"])
def test_a_stopped_run(able, how, tmp_path):
    command = [sys.executable, "-m", "tests.ptdp_core.emulation.jobs"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # kill -9 leaves temporary folders
    run = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: len(ranks_of(run.pid)) == RANKS)
    emulated = Emulated(run.pid)
    if how is signal.SIGINT:
        os.killpg(run.pid, how)  # as a terminal does: the whole group
    else:
        run.kill()
    assert run.wait(SOON) == (130 if how is signal.SIGINT else -signal.SIGKILL)
    wait_for(emulated.is_gone)
    assert interfaces() == emulated.interfaces
    assert how is signal.SIGKILL or not list(tmp_path.glob("ptdp-*"))
    assert run.stdout is not None
    run.stdout.close()


def during(action: Callable[[Emulated], None]) -> tuple[threading.Thread, list[Emulated]]:
    """Do something a bit after the ranks of this process's emulation are in their namespaces."""
    found: list[Emulated] = []

    def act() -> None:
        wait_for(lambda: len(ranks_of(os.getpid())) == RANKS)
        found.append(Emulated(os.getpid()))
        time.sleep(1)
        action(found[0])

    thread = threading.Thread(target=act)
    thread.start()
    return thread, found


def test_a_killed_rank(able):
    def kill(emulated: Emulated) -> None:
        os.kill(ranks_of(os.getpid())[0], signal.SIGKILL)

    thread, found = during(kill)
    with pytest.raises(RankError, match=r"rank \d was killed by SIGKILL"):
        emulate(config(LARGE, p=RANKS, b=1, B=64), load_cluster(), gpus_per_node=1)
    thread.join()
    assert found[0].is_gone()
    assert interfaces() == found[0].interfaces


def test_a_dropped_link(able, monkeypatch):
    monkeypatch.setattr("ptdp_core.emulation.run.PATIENCE_ITERATIONS", 0)
    monkeypatch.setattr("ptdp_core.emulation.run.PATIENCE_SECONDS", 12)

    def drop(emulated: Emulated) -> None:  # with the process that holds them, all links go
        for pid in filter(is_fabric, emulated.processes):
            os.kill(pid, signal.SIGKILL)

    thread, found = during(drop)
    with pytest.raises(LinkError, match="the whole emulated network went down"):
        emulate(config(LARGE, p=RANKS, b=1, B=4), load_cluster(), gpus_per_node=1)
    thread.join()
    assert found[0].is_gone()
