"""Every command shows an example in its help, and it runs."""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reproduce.cli import main, parser_of
from reproduce.commands import COMMANDS
from results import ROOT
from results.records import errors

POINT = {"model": "llama-3-8b", "t": 4, "d": 4, "b": 2, "B": "1M", "recompute": "none", "attention": "sdpa"}
TRAINED = {"layers": 4, "hidden": 64, "heads": 4, "seq": 64, "vocab": 256, "p": 2, "b": 8, "B": 64}  # as AFTER has it
RUN = {
    "id": "here-000",
    "hardware": "DGX-H100",
    "model": {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 51200},
    "layout": {"gpus": 16, "t": 2, "p": 2, "d": 4, "v": None, "b": 1, "B": 64, "s": 2048},
    "precision": "bf16",
    "metric": "tokens_per_s_per_gpu",
}
FURTHER = {"explore": 1, "calibrate": 3}  # which of several examples: the first serves, or measures for minutes
BUDGET = ["--budget", "4s", "--project", "."]
SHORTER = {"gate": BUDGET, "gate trials": [*BUDGET, "--runs", "1"]}
AFTER = {  # what a command reads that another one writes
    "plot": ["fig_interleaved"],
    "compare": ["fig_bubble"],
    "report": ["fig_bubble"],
    "explain trace": ["train --recipe tiny --set p=2 --set steps=2 --set profile=trace --ranks 2"],
    "weights": ["train --recipe tiny --set steps=1 --set save=checkpoints --ranks 1"],
}
QUICK = {"list", "describe", "verify", "paper", "simulate", "explain", "schedule"}
WITHOUT_RESULTS = {
    "verify",
    "describe",
    "list",
    "simulate",
    "explain",
    "explain trace",
    "doctor",
    "predict",
    "paper",
    "train",
    "weights",
}
WITHOUT_RESULTS |= {"explore", "calibrate", "compare", "gate exact"}


def examples(name):
    _, *shown = re.split(r"^examples?:$", parser_of(name).epilog, flags=re.MULTILINE)
    return re.findall(r"^  reproduce (.*?)(?:   .*)?$", re.sub(r" *\\\n +", " ", "".join(shown)), re.MULTILINE)


def test_every_command_shows_an_example():
    assert [name for name in COMMANDS if not examples(name)] == []


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """A folder with what the examples read, in which they run: a git checkout of two commits, too."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "docs" / "asked", "asked")
    shutil.copy("asked/nccl_allreduce_16.txt", "all_reduce_16.txt")
    for name, row in (("points", POINT), ("mine", POINT), ("runs", RUN)):
        (tmp_path / f"{name}.json").write_text(json.dumps([row]))
    return tmp_path


def checkout(folder):
    """Two commits of a project with a benchmark."""
    (folder / "pyproject.toml").write_text('[tool.ptdp.gate.workloads]\nsums = "bench:sums"\n')
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for n in (1, 2):
        (folder / "bench.py").write_text(f"def sums():\n    return lambda: sum(range({n}000))\n")
        for words in (["init", "-q"], ["add", "bench.py", "pyproject.toml"], ["commit", "-qm", str(n)]):
            subprocess.run([*git, *words], cwd=folder, check=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in COMMANDS]
)
def test_the_example_of_a_command_runs(name, inputs):
    if name in ("gate", "gate trials"):
        checkout(inputs)
    results = ["--results", "results/runs" if name == "compare" else "runs"]
    if name == "compare":
        (inputs / "results").mkdir()
        (inputs / "results" / "reference").symlink_to(ROOT / "results" / "reference")
    if name == "explain trace":
        (inputs / "mine.json").write_text(json.dumps([TRAINED]))
    for line in AFTER.get(name, []):
        words = shlex.split(line)
        assert main([*words, *([] if words[0] == "train" else results), "-q"]) == errors.DONE
    words = shlex.split(examples(name)[FURTHER.get(name, 0)])
    words = ["sums" if word == "simulator" else word for word in words]  # of the toy
    words = [each for word in words for each in (sorted(glob.glob(word)) if "*" in word else [word])]
    with_results = [] if name in WITHOUT_RESULTS else results
    try:
        code = main([*words, *SHORTER.get(name, []), *with_results])
    except SystemExit as ended:
        code = ended.code
    expected = {errors.DONE} | (
        {errors.REGRESSED, errors.INCONCLUSIVE, errors.NOTHING_SELECTED} if name == "gate" else set()
    )
    assert code in expected


@pytest.mark.slow
def test_ranks_start_beside_folders_that_are_called_as_our_packages(tmp_path):
    for name in ("results", "kernels"):
        (tmp_path / name).mkdir()
    command = [Path(sys.executable).with_name("reproduce"), *shlex.split(AFTER["weights"][0])]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == errors.DONE, done.stderr
