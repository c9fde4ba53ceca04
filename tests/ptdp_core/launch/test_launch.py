"""The launcher: results, and every way a rank can fail. The run ends soon, names the rank, and leaves no process."""

import multiprocessing
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from ptdp_core.launch import local as launcher
from ptdp_core.launch.local import RankError, launch
from tests.processes import ROOT, Program, is_alive, needs_proc, wait_for
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.launch.faults import AXES


def test_results_may_hold_tensors():
    first, second = launch(jobs.sums, 2)
    assert first["sum"].tolist() == second["sum"].tolist() == [3.0, 3.0]
    assert first["threads"] == 1


def fails(folder, how, who, timeout=600, case=None):
    """What a launch of four ranks raises, one of which misbehaves; none of them is left."""
    with pytest.raises(RankError) as caught:
        launch(jobs.misbehave, 4, (how, who, folder, case), timeout=timeout)
    assert not any(map(is_alive, jobs.pids(folder, 4)))
    assert caught.value.rank == who
    return caught.value


@pytest.mark.parametrize("who", range(4))
def test_a_killed_rank(who, tmp_path):
    assert str(fails(tmp_path, "kill", who)) == f"rank {who} was killed by SIGKILL before it was done"


@pytest.mark.parametrize("who", [0, 3])
def test_a_rank_that_raises(who, tmp_path):
    error = str(fails(tmp_path, "raise", who))
    assert "ArithmeticError: this rank is broken" in error
    assert "jobs.py" in error  # with its traceback


def test_a_rank_that_exits(tmp_path):
    assert str(fails(tmp_path, "exit", 1)) == "rank 1 ended with exit code 7 before it was done"


@pytest.mark.slow
def test_a_rank_that_hangs(tmp_path):
    error = str(fails(tmp_path, "hang", 2, timeout=10))
    assert error.startswith("rank 2 hangs: no step finished in 10 s while the others wait; it is in")
    assert "in misbehave" in error


def test_where_ranks_wait_for_a_rank_they_are_seen_to_wait(tmp_path):
    cases = [{"B": 4} | case for case in AXES.values()]
    rows = launch(jobs.where_others_wait, 4, (cases, 1, str(tmp_path)), timeout=60)[1]
    wrong = {
        name: [stack for stack in stacks if not launcher._is_waiting(stack)]
        for name, stacks in zip(AXES, rows, strict=True)
    }
    assert wrong == {name: [] for name in AXES}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["hang", "stop"])
@pytest.mark.parametrize("name", AXES)
def test_of_every_axis_the_rank_that_does_not_go_on_is_named(name, how, tmp_path):
    error = str(fails(tmp_path, how, 1, timeout=10, case={"B": 4} | AXES[name]))
    assert error.startswith("rank 1 hangs: no step finished in 10 s while the others wait; it is in")
    assert ("an unknown place: it does not answer" if how == "stop" else "in misbehave") in error


@pytest.mark.parametrize(
    ("innermost", "waiting"),
    [
        ('File "/x/torch/distributed/distributed_c10d.py", line 3007 in all_reduce', True),
        ('File "/x/ptdp_core/engine/optimizer.py", line 250 in on_host', True),
        ('File "/x/torch/cuda/__init__.py", line 1040 in synchronize', True),
        ('File "/x/ptdp_core/engine/groups.py", line 98 in all_to_all', True),
        ('File "/x/ptdp_core/engine/data.py", line 230 in __getitem__', False),
        ("", False),
    ],
)
def test_a_rank_that_waits_for_its_gpu_is_not_the_one_that_hangs(innermost, waiting):
    """On a GPU ranks whose peer hangs are held up where they ask for the loss, not in a call of torch.distributed."""
    assert launcher._is_waiting(f"Current thread (most recent call first):\n  {innermost}\n") is waiting


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs
if __name__ == "__main__":
    launch(jobs.misbehave, 4, ("hang", 1, Path({folder!r})))
"""


@pytest.mark.slow
@needs_proc
def test_ranks_do_not_outlive_a_killed_launcher(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.format(root=str(ROOT), folder=str(tmp_path)))
    with Program(tmp_path, str(script)) as run:
        wait_for(lambda: all((tmp_path / f"pid-{rank}").exists() for rank in range(4)))
        assert run.processes() >= {run.process.pid, *jobs.pids(tmp_path, 4)}
        run.process.kill()
        run.wait_until_gone()


@pytest.mark.parametrize("gone", [True, False])
def test_the_server_ends_with_a_launcher_that_is_gone_already(gone):
    parent = str(0 if gone else os.getpid())
    script = "import os, ptdp_core.launch.end_with_parent; print('PTDP_PARENT' in os.environ)"
    environment = {**os.environ, "PTDP_PARENT": parent}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ((1, "") if gone else (0, "False\n"))


@pytest.mark.parametrize(("said", "died"), [(("result", 7), False), (None, True)])
def test_a_rank_that_has_ended_well_did_not_die_with_its_result_unread(said, died, tmp_path):
    """A rank may send its result and end between the supervisor's reading and its look at who is still there."""
    ours, theirs = multiprocessing.Pipe()
    if said is not None:
        theirs.send(said)
    theirs.close()
    member = launcher._Rank(0, SimpleNamespace(exitcode=0), ours, tmp_path)
    assert launcher._died(member) is died
    assert member.done is not died
