"""The history of a benchmark: kept records, change points, table and figure; and the bisection of a change."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import bisection, history
from reproduce import cli
from reproduce.analysis.history import change_points
from reproduce.commands import bench
from results.records import Host, Metric, PointResult, Provenance, Record, errors
from tests.benchmarks.gate.conftest import git

HOST = Host("Linux 6.1", "x86_64", "AMD EPYC 7763", 16, 2**37, ("H200",), 1)


def record(at: int, value: float, host: Host = HOST, scale: str = "full") -> Record:
    point = PointResult(
        "cold", "cold", "cold", {}, "ok", None, "0" * 64, {"time": Metric(value, "s", "measured", (value,))}
    )
    started = f"2026-01-{at + 1:02}T00:00:00Z"
    made_by = Provenance(f"{at:040x}", False, {"python": "3.11.7"}, host, ("x",), None, started, 1.0)
    return Record("benchmark", "simulator_rate", "Rate", None, "measured", scale, "complete", made_by, (point,))


def noisy(*levels: float) -> list[float]:
    rng = np.random.default_rng(0)
    return [level * float(np.exp(rng.normal(0, 0.01))) for level in levels]


@pytest.mark.parametrize(
    ("levels", "changes"),
    [
        ([1.0] * 20, ()),
        ([1.0] * 8 + [1.1] * 8, (8,)),
        ([1.0] * 8 + [0.9] * 6 + [1.2] * 6, (8, 14)),
        ([1.0] * 10 + [1.02] * 10, ()),  # less than 3%
        ([1.0] * 8 + [1.3] + [1.0] * 8, ()),  # an outlier
        ([1.0, 1.0, 1.5, 1.5], ()),  # too few runs
    ],
)
def test_change_points(levels: list[float], changes: tuple[int, ...]) -> None:
    assert tuple(change_points(noisy(*levels))) == changes


def test_a_step_is_that_of_the_levels() -> None:
    assert change_points([1.0] * 6 + [1.2] * 6) == pytest.approx({6: 0.2})


def test_every_run_is_kept_by_machine_and_commit(tmp_path: Path) -> None:
    paths = [history.keep(record(at, 1.0), tmp_path) for at in (1, 0)]
    history.keep(record(2, 1.0, replace(HOST, logical_cores=2)), tmp_path)
    history.keep(record(3, 1.0, scale="quick"), tmp_path)
    assert paths[0].parent.name == "amd-epyc-7763-16-cores-1-h200"
    assert paths[0].name == "20260102T000000Z-0000000000.json"
    by_machine = history.kept(tmp_path, "simulator_rate", "full")
    assert [[kept.provenance.started[8:10] for kept in records] for records in by_machine.values()] == [
        ["01", "02"],
        ["03"],
    ]


def test_the_command_names_the_commit_of_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "history", "simulator_rate", "--results", str(tmp_path)]
    assert cli.main(arguments) == errors.NOTHING_SELECTED
    for at, value in enumerate(noisy(*[1.0] * 6, *[1.2] * 6)):
        history.keep(record(at, value), tmp_path)
    assert cli.main(arguments) == errors.DONE
    out = capsys.readouterr().out
    assert "12 runs" in out
    assert f"% at {6:040x}"[:14] in out
    assert (
        tmp_path / "benchmarks/simulator_rate/history/amd-epyc-7763-16-cores-1-h200/trend.png"
    ).stat().st_size > 5000
    assert cli.main([*arguments, "--point", "cold"]) == errors.DONE
    assert "from here" in capsys.readouterr().out
    assert cli.main([*arguments, "--point", "cool"]) == errors.USAGE
    assert "did you mean 'cold'?" in capsys.readouterr().err


BENCHMARK = """\
import json
point = {"key": "cold", "metrics": {"time": {"value": %s}}}
print(json.dumps({"benchmarks": [{"points": [point]}]}))
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Six commits, tagged c0 to c5: the third cannot run the benchmark, and the fifth makes it slower."""
    root = tmp_path / "checkout"
    (root / "reproduce").mkdir(parents=True)
    (root / "reproduce/__init__.py").touch()
    git(root, "init", "--quiet")
    for at, value in enumerate(("1.0", "1.01", "nothing", "0.99", "1.2", "1.21")):
        (root / "reproduce/__main__.py").write_text(BENCHMARK % value)
        git(root, "add", "--all")
        git(root, "commit", "--quiet", "--message", f"number {at}")
        git(root, "tag", f"c{at}")
    return root


def bisected(repository: Path, monkeypatch: pytest.MonkeyPatch, good: str, bad: str) -> int:
    monkeypatch.setattr(bisection, "RUNS", 1)
    run = bench.bisect
    monkeypatch.setattr(bench, "bisect", lambda parsed: run(parsed, repository))
    return cli.main(["bench", "bisect", "simulator_rate", "--good", good, "--bad", bad])


def test_the_first_bad_commit_is_found_past_one_that_does_not_run(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bisected(repository, monkeypatch, "c0", "c5") == errors.DONE
    assert capsys.readouterr().out.splitlines()[-1].endswith("number 4")
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain") == ""


def test_commits_that_hardly_differ_are_not_bisected(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bisected(repository, monkeypatch, "c0", "c1") == errors.NOTHING_SELECTED
    assert "differ by +1.0% at most (cold), which noise can do" in capsys.readouterr().err
