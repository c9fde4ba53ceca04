"""What went, and that it says so: a name that is gone ends in one line with what to use instead.

Tests that went, and what holds the same now, are the rows of `removed.txt`.
"""

from pathlib import Path

import pytest

from reproduce.cli import main
from reproduce.commands import COMMANDS, GONE
from results.records import errors

ROOT = Path(__file__).parents[1]
# Paths that are gone, with the last release that has them.
PATHS = {
    "1.0.0": (
        "benchmarks/harness/history.py",
        "benchmarks/harness/bisection.py",
        "reproduce/analysis/history.py",
        "reproduce/commands/completion.py",
        "reproduce/commands/generate.py",
        "reproduce/commands/data.py",
        "reproduce/commands/site.py",
        "reproduce/commands/timeline.py",
        "results/schema/timeline-1.schema.json",
        "reproduce/output/tikz.py",
        "reproduce/tools/generation.py",
        "reproduce/tools/text.py",
        "results/reference/blind/modern/before",
        "results/reference/blind/modern/after",
        "results/reference/blind/modern/five_axes",
        "results/reference/blind/modern/accumulated",
    ),
    "1.1.0": (
        "ptdp_core/launch/elastic.py",
        "ptdp_core/launch/srun.py",
        "ptdp_core/engine/evaluation.py",
        "kernels/layer_norm.py",
    ),
}


@pytest.mark.parametrize("name", GONE)
def test_a_command_that_is_gone_says_what_to_use(name, capsys):
    assert name not in COMMANDS
    assert main([*name.split(), "anything"]) == errors.USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{name} went in version 1.1.0 (docs/upgrading.md); try " in said
    assert f"`reproduce {name}`" in (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for paths in PATHS.values() for path in paths])
def test_what_is_gone_is_not_there_and_nothing_names_it(path):
    assert not (ROOT / path).exists()


def test_committed_results_are_at_most_8_megabytes():
    assert sum(file.stat().st_size for file in (ROOT / "results" / "reference").rglob("*") if file.is_file()) <= 8e6


def test_of_a_test_that_went_another_place_holds_the_same():
    rows = (ROOT / "tests" / "removed.txt").read_text(encoding="utf-8").splitlines()
    for old, new in (row.split(" -> ") for row in rows if " -> " in row):
        for test, there in ((old, False), (new, True)):
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
            assert (bool(text) and f"def {name}(" in text if name else bool(text)) is there, test
