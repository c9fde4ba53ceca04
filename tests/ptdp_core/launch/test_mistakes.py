"""Mistakes on the command line of `ptdp-train`, which end before any process starts: `mistakes.txt` has them all."""

from pathlib import Path

import pytest

from ptdp_core.launch.command_line import main
from tests.mistakes import check, mistakes


@pytest.fixture(autouse=True)
def never_launched(tmp_path, monkeypatch, own_registry):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ptdp_core.launch.command_line.launch", lambda *arguments, **options: pytest.fail("a launch"))


@pytest.mark.parametrize("mistake", mistakes(Path(__file__).with_name("mistakes.txt")))
def test_a_mistake_is_one_line(mistake, capsys):
    check(mistake, main, capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--recipe", "tiny", "--set", f"lr={'[' * 20_000}"], "lr='[[["),
        (["--recipe", "gpt-175b", "--print-sbatch", "--partition", "gpu\n#SBATCH --x"], "is no name"),
    ],
    ids=["nested", "two lines"],
)
def test_a_value_that_no_line_holds(words, message, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
