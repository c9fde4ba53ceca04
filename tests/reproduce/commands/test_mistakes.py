"""Mistakes on the command line of `reproduce`: `mistakes.txt` has them all."""

from pathlib import Path

import pytest

from reproduce.cli import main
from results import ROOT
from tests.mistakes import check, mistakes

RECORD = Path("fig_interleaved") / "simulated" / "record.json"


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("mistake", mistakes(Path(__file__).with_name("mistakes.txt")))
def test_a_mistake_is_one_line(mistake, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("results.records.storage.DEFAULT_RESULTS", tmp_path / "runs")  # ours may have any record
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if "reference" in mistake.line:  # a results folder
        (tmp_path / "reference" / RECORD).parent.mkdir(parents=True)
        (tmp_path / "reference" / RECORD).write_bytes((ROOT / "results" / "reference" / RECORD).read_bytes())
    check(mistake, main, capsys)
