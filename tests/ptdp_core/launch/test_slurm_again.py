"""A printed batch script under a Slurm played here: signalled before its time is over, killed then, started again."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from ptdp_core.launch.command_line import main
from tests.processes import PATIENCE_S, wait_for

SRUN = """#!/bin/bash
shift
SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 "$@" & echo $! > task.new; mv task.new task
wait $!; exit $?
"""
SCONTROL = """#!/bin/bash
if [ $1 = requeue ]; then echo $2 >> requeued; else echo 127.0.0.1; fi
"""
# A rank that saves when it is signalled, and has nothing left to do where something is saved.
RANK = """#!/bin/bash
echo "$@" >> starts
if [ -e saved ]; then exit 0; fi
trap 'touch saved; exit 143' TERM
touch running
while true; do sleep 0.02; done
"""


def submit(folder, script, limit, cancelled=None):
    """Exit codes of a job's starts. Its ranks are signalled at the limit, in the `cancelled` start the script, too."""
    codes = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = {"SLURM_JOB_ID": str(port - 20000 if port > 20000 else port), "SLURM_JOB_NODELIST": "here"}
    while True:
        again = {"SLURM_RESTART_COUNT": str(len(codes))} if codes else {}
        environment = {
            **os.environ,
            **job,
            **again,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SLURM_CPUS_ON_NODE": "1",
        }
        asked, task = len(codes), folder / "task"
        task.unlink(missing_ok=True)
        process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=environment, start_new_session=True)
        try:
            wait_for(lambda asked=asked, process=process: limit(asked) or process.poll() is not None)
            if process.poll() is None:
                wait_for(task.exists)
                if cancelled == asked:
                    process.send_signal(signal.SIGTERM)
                os.kill(int(task.read_text()), signal.SIGTERM)
            codes.append(process.wait(PATIENCE_S))
        finally:
            if process.poll() is None:  # the job's time is over
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        requeued = folder / "requeued"
        if not requeued.exists() or len(requeued.read_text().split()) < len(codes):
            return codes


def printed(capsys, *words):
    assert main(["--recipe", "tiny", "--set", "device=cpu", *words, "--print-sbatch"]) == 0
    return capsys.readouterr().out


def play(folder, **programs):
    for name, text in {"srun": SRUN, "scontrol": SCONTROL, **programs}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("given", "first", "then"), [((), " --resume auto", ""), (("--resume", "old"), " --resume old", " --resume auto")]
)
def test_a_job_whose_time_is_over_saves_is_queued_again_and_goes_on(given, first, then, tmp_path, capsys):
    play(tmp_path, python=RANK)
    script = printed(capsys, "--set", "save=out", "--ranks", "1", *given)
    assert submit(tmp_path, script, lambda start: start == 0 and (tmp_path / "running").exists()) == [143, 0]
    starts = (tmp_path / "starts").read_text().splitlines()
    words = f"-m ptdp.train --recipe tiny --set device=cpu --set save=out{first}"
    assert starts == [words, words + then]  # of two --resume the last counts


def test_a_job_that_is_cancelled_is_not_queued_again(tmp_path, capsys):
    play(tmp_path, python=RANK)
    script = printed(capsys, "--set", "save=out")
    assert submit(tmp_path, script, lambda _: (tmp_path / "running").exists(), cancelled=0) == [143]


def test_a_job_that_saves_nothing_says_so_and_is_not_queued_again(capsys):
    script = printed(capsys)
    assert "#SBATCH --no-requeue\n# Nothing is saved" in script
    assert "scontrol requeue" not in script


def test_a_script_for_another_number_of_ranks_is_refused(capsys):
    assert main(["--recipe", "small", "--set", "p=2", "--set", "t=2", "--ranks", "16", "--print-sbatch"]) == 2
    assert "ranks=16 for p*t*d=2*2*1=4; needs as many ranks as p*t*d; try --ranks 4" in capsys.readouterr().err
    assert main(["--recipe", "small", "--set", "p=2", "--set", "t=2", "--ranks", "4", "--print-sbatch"]) == 0
    assert "--ranks" not in capsys.readouterr().out  # each task is one rank


@pytest.mark.slow
def test_training_goes_on_step_by_step_over_a_job_s_limit(tmp_path, capsys):
    play(tmp_path, python=f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    sets = [f"save={tmp_path / 'out'}", f"log={tmp_path / 'log'}", f"cache={tmp_path / 'cache'}", "steps=1000000"]
    script = printed(capsys, *(word for text in sets for word in ("--set", text)))

    def steps():
        log = tmp_path / "log"
        rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [row["step"] for row in rows if row["event"] == "step"]

    ends = []

    def limit(start):
        done = len(steps())
        if len(ends) == start and done > 2 + sum(ends):  # each start does a few more
            ends.append(done)
        return len(ends) > start

    assert submit(tmp_path, script, limit, cancelled=1) == [143, 143]
    assert steps() == list(range(1, len(steps()) + 1))
