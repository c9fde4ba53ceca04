"""Measured runs from the command line: launchers, scripts for Slurm, and being interrupted."""

import json
import os
import signal
import socket
import subprocess

import pytest

from benchmarks.harness import elastic, srun
from benchmarks.harness.launchers import Launcher
from ptdp_core.launch.local import Failure, RankError
from results.records.errors import INTERRUPTED, UNAVAILABLE, UnavailableError, UsageError
from tests.processes import Program, needs_proc, wait_for
from tests.reproduce import blocked_run, measured_jobs

MEASURED = ["fig_interleaved", "--fidelity", "measured"]
SRUN = """#!/bin/bash
# As srun starts tasks: each with its number; ends all when one fails.
shift; n=${1#--ntasks=}; shift
for i in $(seq 0 $((n - 1))); do SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_NTASKS=$n "$@" & pids="$pids $!"; done
code=0; i=0
for pid in $pids; do
  wait $pid || { code=$?; [ $code = 137 ] && echo "srun: error: node: task $i: Killed" >&2; kill $pids; }
  i=$((i + 1))
done 2> >(grep srun: >&2)
exit $code
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm of one node: an allocation, and an srun that starts processes here."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"SLURM_JOB_ID": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def other(request):
    """A launcher that is not the engine's."""
    if request.param == "slurm":
        request.getfixturevalue("slurm")
    return Launcher(request.param)


BOTH = pytest.mark.parametrize("other", ["torchrun", "slurm"], indirect=True)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_return_what_they_found(other, ranks):
    names = other(measured_jobs.name_yourself, ranks, ("here",), "cpu")
    assert names == [("here", rank, ranks) for rank in range(ranks)]


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_the_rank_that_failed_is_named(other, how):
    with pytest.raises(RankError) as caught:
        other(measured_jobs.misbehave, 2, (how, 1), "cpu")
    expected = "was killed by SIGKILL before it was done" if how == "kill" else "failed: ArithmeticError: rank with a"
    assert caught.value.rank == 1
    assert str(caught.value).startswith(f"rank 1 {expected}")


def test_the_cause_in_what_srun_and_its_tasks_say():
    followed = Failure("RuntimeError", "Connection closed by peer [127.0.0.1]:1", "")
    killed = srun._failure(137, "srun: error: n1: task 2: Killed", {0: followed})
    assert str(killed) == "rank 2 was killed by SIGKILL before it was done"
    errors = {0: followed, 1: Failure("KeyError", "own", "Trace")}
    assert str(srun._failure(1, "", errors)) == "rank 1 failed: KeyError: own\nTrace"  # not rank 0's, which followed
    assert "last words: cannot allocate" in str(srun._failure(1, "\ncannot allocate\n\n", {}))


def test_where_launchers_cannot_work(monkeypatch, tmp_path):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UnavailableError, match=r"inside an allocation.*--print-script"):
        Launcher("slurm")
    with pytest.raises(UsageError, match="unknown launcher 'mpi'; there are: local, torchrun, slurm"):
        Launcher("mpi")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        with pytest.raises(UnavailableError, match=f"MASTER_PORT={port} cannot be used: .*in use; needs a free port"):
            Launcher("torchrun")
    assert elastic.check_port() == port
    assert elastic._config(2, port, str(tmp_path)).rdzv_endpoint == f"127.0.0.1:{port}"
    monkeypatch.setenv("MASTER_PORT", "http")
    with pytest.raises(UsageError, match="MASTER_PORT='http' is no port"):
        Launcher("torchrun")


def test_a_script_for_slurm(said, tmp_path):
    options = ["--launcher", "slurm", "--print-script", "--results", str(tmp_path)]
    script = said(*MEASURED, "--scale", "cpu", *options)
    assert "#SBATCH --ntasks=4\n" in script
    assert "--gpus-per-node" not in script
    last = f"-m ptdp {' '.join(MEASURED)} --scale cpu --launcher slurm --results {tmp_path}\n"
    assert script.endswith(last)
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert "#SBATCH --gpus-per-node=4\n" in said(*MEASURED, "--scale", "gpus", *options)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(refused, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--results" in refused(
        *MEASURED, "--scale", "cpu", "--results", tmp_path / "file" / "results", code=UNAVAILABLE
    )


@pytest.mark.slow
@needs_proc
@pytest.mark.parametrize("launcher", ["local", "torchrun"])
def test_interrupted(launcher, tmp_path):
    """Ctrl-C: finished points are kept, no rank goes on, and the message resumes."""
    results, waits = tmp_path / "results", [tmp_path / f"waits-{rank}" for rank in range(blocked_run.RANKS)]
    command = ["table_weak_scaling", "--fidelity", "measured", "--scale", "cpu", "--launcher", launcher]
    module = ["-m", "tests.reproduce.blocked_run", str(tmp_path)]
    with Program(tmp_path, *module, *command, "--results", str(results)) as run:
        wait_for(lambda: run.process.poll() is not None or all(path.exists() for path in waits))
        run.signal_group(signal.SIGINT)
        assert run.wait() == INTERRUPTED
        run.wait_until_gone()
        assert not run.temporary_files()
        *progress, last = run.stderr.splitlines()
        assert all(line.startswith("table_weak_scaling: ") for line in progress), run.stderr
    assert "interrupted: 1 of 3 points of table_weak_scaling are finished and kept; resume with:" in last
    assert f"--launcher {launcher}" in last
    record = json.loads((results / "table_weak_scaling" / "measured" / "record.json").read_text())
    assert record["state"] == "partial"
    assert [point["status"] for point in record["points"]] == ["ok"]
    assert [path.name for path in (results / "table_weak_scaling" / "measured").iterdir()] == ["record.json"]
