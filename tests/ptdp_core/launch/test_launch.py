"""The launcher: results, and every way a rank can fail. The run ends soon, names the rank, and leaves no process."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ptdp_core.launch import local as launcher
from ptdp_core.launch.local import RankError, launch
from tests.processes import descendants
from tests.ptdp_core.engine import jobs

SOON = 30  # seconds: long before the 60 of a peer's timeout, also on a busy machine


def fails(how: str, who: int, timeout: float = 60) -> tuple[RankError, float]:
    launch(jobs.places, 4, ((2, 2, 1),), timeout=60)  # the server that ranks are forked from exists
    before, start = descendants(os.getpid()), time.monotonic()
    with pytest.raises(RankError) as caught:
        launch(jobs.misbehave, 4, (how, who), timeout=timeout)
    seconds = time.monotonic() - start
    assert descendants(os.getpid()) <= before
    return caught.value, seconds


@pytest.mark.parametrize("who", range(4))
def test_a_killed_rank(who: int) -> None:
    error, seconds = fails("kill", who)
    assert error.rank == who
    assert str(error) == f"rank {who} was killed by SIGKILL before it was done"
    assert seconds < SOON


@pytest.mark.parametrize("who", [0, 3])
def test_a_rank_that_raises(who: int) -> None:
    error, seconds = fails("raise", who)
    assert error.rank == who
    assert "ArithmeticError: this rank is broken" in str(error)
    assert "jobs.py" in str(error)  # with its traceback
    assert seconds < SOON


def test_a_rank_that_exits() -> None:
    error, seconds = fails("exit", 1)
    assert str(error) == "rank 1 ended with exit code 7 before it was done"
    assert seconds < SOON


@pytest.mark.parametrize("who", [1, 2])
def test_a_rank_that_hangs(who: int) -> None:
    error, seconds = fails("hang", who, timeout=3)
    assert error.rank == who
    assert str(error).startswith(f"rank {who} hangs: no step finished in 3 s while the others wait; it is in")
    assert "in misbehave" in str(error)
    assert seconds < SOON


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs
if __name__ == "__main__":
    launch(jobs.misbehave, 4, ("run", 0), timeout=60)
"""


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(root=str(Path.cwd())))
    before = descendants(os.getpid())
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        deadline = time.monotonic() + 40
        while len(descendants(os.getpid()) - before) < 6 and time.monotonic() < deadline:
            time.sleep(0.2)
        started = descendants(os.getpid()) - before
        assert len(started) >= 6  # the launcher, the fork server, four ranks
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 8
    alive = started
    while alive and time.monotonic() < deadline:
        time.sleep(0.2)
        alive = {pid for pid in started if Path(f"/proc/{pid}/stat").exists() and not _zombie(pid)}
    assert not alive


def _zombie(pid: int) -> bool:
    try:
        return re.search(r"\) Z ", Path(f"/proc/{pid}/stat").read_text()) is not None
    except OSError:
        return True


@pytest.mark.parametrize(("said", "died"), [(("result", 7), False), (None, True)])
def test_a_rank_that_has_ended_well_did_not_die_with_its_result_unread(
    said: object, died: bool, tmp_path: Path
) -> None:
    """A rank may send its result and end between the supervisor's reading and its look at who is still there."""
    ours, theirs = multiprocessing.Pipe()
    if said is not None:
        theirs.send(said)
    theirs.close()
    member = launcher._Rank(0, SimpleNamespace(exitcode=0), ours, tmp_path)
    assert launcher._died(member) is died
    assert member.done is not died
