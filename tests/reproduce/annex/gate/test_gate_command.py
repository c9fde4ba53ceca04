"""`reproduce gate`: exit codes and sentences, Markdown, JSON and record; measured by a launcher that is made up."""

import json
from types import SimpleNamespace

import pytest

from reproduce import cli
from reproduce.annex.gate import command_gate as gate
from reproduce.annex.gate import run
from reproduce.annex.gate.guard import Reading
from reproduce.annex.gate.trees import HEAD
from results.records import read_record
from tests.marks import by_default
from tests.reproduce.annex.gate.conftest import PYPROJECT, MadeUpLauncher, git

SUITE = ("pipeline_step", "simulator")


class Machine(MadeUpLauncher):
    """Where head is slower by `factor`."""

    factor = 1.0

    def slower(self, side):
        return (1 + self.slowdown) * self.factor if side == HEAD else 1.0


@pytest.fixture(autouse=True)
def machine(monkeypatch, pretend, tmp_path):
    monkeypatch.setattr("results.records.storage.DEFAULT_RESULTS", tmp_path / "results")
    return pretend(gate, Machine)


def reproduce(*arguments):
    return cli.main(["gate", *arguments])


@pytest.fixture
def changed(commit):
    return commit("ptdp_core/new.py", "x = 1\n")


@pytest.mark.parametrize(
    ("factor", "code", "verdict"),
    by_default([(1.0, 0, "ok"), (1.15, 6, "regressed"), (0.85, 0, "improved")], (1.15, 6, "regressed")),
)
def test_verdicts_in_all_forms(machine, changed, tmp_path, capsys, factor, code, verdict):
    machine.factor = factor
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    assert reproduce("--base", "first", "--seed", "7", "--summary", str(summary)) == code
    text = capsys.readouterr().out
    assert text.startswith(f"**{verdict}**: ")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [line for line in rows if line.startswith(f"| {verdict} ") and line.rstrip(" |").endswith(" pipeline_step")]
    assert max(map(len, rows)) <= 80
    assert "both sides in the environment of the gate, 12 pairs of 3 processes a side, 0 of 36 rounds redone" in text
    assert "seed 7" in text
    assert summary.read_text().startswith(f"before\n**{verdict}**: ")
    assert reproduce("--base", "first", "--seed", "7", "--json") == code
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["exit_code"], document["head"]["commit"]) == (verdict, code, changed)
    entry = document["benchmarks"][0]
    assert entry["lower"] < entry["slowdown"] < entry["upper"]
    assert entry["slowdown"] == pytest.approx(factor - 1, abs=0.02)
    record = read_record(document["record"])
    assert (record.kind, record.id, record.provenance.seed) == ("comparison", "check", 7)
    assert [(point.key, point.series) for point in record.points] == [(name, verdict) for name in SUITE]
    assert len(record.points[0].metrics["head_time"].samples or ()) == 36


def error_of(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--base", "nope"), 2, "--base 'nope' names no commit here"),
        (("--base", "first", "--head", "nope"), 2, "--head 'nope' names no commit here"),
        (("--base", "first", "--benchmark", "simulater"), 2, "did you mean 'simulator'?"),
        (("--base", "first", "--budget", "soon"), 2, "try --budget 10m"),
        (("--base", "first", "--budget", "0m"), 2, "try --budget 10m"),
        (("--base", "first", "--budget", "nan"), 2, "try --budget 10m"),
        (("--base", "first", "--seed", "-1"), 2, "needs a whole number from 0 on"),
        ((), 2, "--base"),
        (("--base", "first", "--head", "HEAD~1"), 9, "are the same commit"),
    ],
)
def test_what_cannot_be_checked(changed, capsys, arguments, code, message):
    assert reproduce(*arguments) == code
    assert message in error_of(capsys)


def test_a_dirty_tree_is_refused_unless_head_is_named(repository, changed, capsys):
    (repository / "ptdp_core/new.py").write_text("x = 2\n")
    assert reproduce("--base", "first") == 2
    assert "changes that no commit holds" in error_of(capsys)
    assert reproduce("--base", "first", "--head", "HEAD") == 0


def test_a_base_that_does_not_build(commit, capsys):
    commit("pyproject.toml", "[project\n")
    commit("pyproject.toml", PYPROJECT)
    assert reproduce("--base", "HEAD~1") == 3
    assert "does not build" in error_of(capsys)


def test_what_base_cannot_run_is_not_compared_and_no_failure(machine, changed, capsys, tmp_path):
    machine.lacks = {"simulator": "base lacks it"}
    assert reproduce("--base", "first") == 0
    out = capsys.readouterr().out
    assert out.startswith("**ok**")
    assert "simulator: not compared: base lacks it" in out
    machine.factor = 1.15
    assert reproduce("--base", "first") == 6
    machine.lacks = dict.fromkeys(SUITE, "base lacks it")
    capsys.readouterr()
    assert reproduce("--base", "first") == 0
    assert capsys.readouterr().out.startswith("**not compared**: base `first`")
    assert reproduce("--base", "first", "--json") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "not compared"
    points = read_record(tmp_path / "results/check/measured/record.json").points
    assert [(point.status, point.reason) for point in points] == [("skipped", "base lacks it")] * 2


def test_a_loaded_machine_is_inconclusive(changed, capsys, monkeypatch):
    monkeypatch.setattr(run, "canary", lambda: Reading(0.01, 2.0))
    assert reproduce("--base", "first") == 7
    assert "the machine is too loaded" in capsys.readouterr().out


def test_a_budget_too_short_for_anything_measures_nothing(changed, capsys, monkeypatch):
    assert reproduce("--base", "first", "--budget", "0.001s") == 9
    assert "is exhausted after 0 of 12 pairs" in capsys.readouterr().out


def test_exact_checks_of_head_come_first(commit, repository, capsys):
    (repository / "reproduce").mkdir()
    commit("pyproject.toml", PYPROJECT + 'exact = "reproduce gate exact"\n')
    script = "import sys\nprint('exact: %s')\nsys.exit(%d)\n"
    for text, code, start in (("1 difference", 6, "**regressed**"), ("the same", 0, "**ok**"), ("", 8, "")):
        commit("reproduce/__main__.py", script % (text, code))
        assert reproduce("--base", "first") == {8: 3}.get(code, code)
        captured = capsys.readouterr()
        assert captured.out.startswith(start)
        assert text in captured.out
        assert ("exact checks of head" in captured.err) == (code == 8)
    commit("reproduce/__main__.py", script % ("1 difference", 6))
    assert reproduce("--base", "first", "--json") == 6
    assert json.loads(capsys.readouterr().out)["exact"]["status"] == "different"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_another_system_exits_3_with_the_reason(platform, monkeypatch, capsys):
    monkeypatch.setattr("reproduce.annex.gate.trees.sys", SimpleNamespace(platform=platform))
    assert reproduce("--base", "first") == 3
    assert f"needs Linux, and this is {platform}" in error_of(capsys)


def test_nothing_is_left_behind(repository, changed):
    assert reproduce("--base", "first") == 0
    assert git(repository, "status", "--porcelain") == ""
