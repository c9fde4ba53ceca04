"""Every annex can be taken away: the rest runs, and says what is not there."""

import re
import shutil
from pathlib import Path

import pytest

from reproduce.annex import ANNEXES
from reproduce.commands import IN_ANNEX
from results import ROOT
from results.records import errors
from tests.marks import by_default
from tests.processes import python

PACKAGES = ("results/records", "results/schema", "kernels", "ptdp_core", "benchmarks", "reproduce", "ptdp")
# What stays: an artifact, its claims, a configuration of one's own.
RUNS = """
from reproduce.cli import main
import sys
codes = [main(line.split()) for line in sys.argv[1:]]
print(codes)
"""
OTHERS = (
    "fig_bubble --results results/runs -q",
    "describe fig_interleaved",
    "list",
    "simulate layers=4 hidden=512 heads=8 B=4",
)

EVERY = "all of them"  # each in turn every night
# What asks for an annex besides its commands.
ASKED_FOR = {
    "bench": ("table_fused_operators --fidelity measured --scale cpu",),
    "emulation": ("fig_interleaved --fidelity emulated",),
    "schema": ("simulate --schema", "list --schema"),
    "measured": ("fig_interleaved --fidelity measured --scale cpu",),
    "plot": ("simulate layers=4 hidden=512 heads=8 B=4 --plot answer.svg",),
    "papers": ("zerobubble/table_4", "fig_scaling", "list --paper llama3"),
}


@pytest.mark.parametrize("taken", by_default([EVERY, *ANNEXES], EVERY))
def test_without_annexes_the_rest_runs_and_their_commands_say_so(taken, tmp_path):
    annexes = tuple(ANNEXES) if taken == EVERY else (taken,)
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
        )
    shutil.copy(ROOT / "results" / "__init__.py", tmp_path / "results")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    margins = Path("results/reference/accuracy/margins.json")
    (tmp_path / margins.parent).mkdir(parents=True)
    shutil.copy(ROOT / margins, tmp_path / margins)
    for annex in annexes:
        shutil.rmtree(tmp_path / "reproduce" / "annex" / annex)
    gone = [f"{name} --help" for name, home in IN_ANNEX.items() if home in annexes]
    gone += [line for annex in annexes for line in ASKED_FOR.get(annex, ())]
    environment = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = python("-c", RUNS, *OTHERS, *gone, cwd=tmp_path, env=environment)
    codes = [errors.DONE] * len(OTHERS) + [errors.UNAVAILABLE] * len(gone)
    assert done.stdout.splitlines()[-1:] == [str(codes)], done.stderr
    said = re.findall("this copy has no annex '(.+?)'", done.stderr)
    assert set(said) == set(annexes)
    assert len(said) == len(gone)
    page = (ROOT / "docs" / "annexes.md").read_text(encoding="utf-8")
    assert all(f"| `{annex}` |" in page for annex in annexes)
