"""`reproduce bench list` and `bench run`: what they list, run, write and refuse."""

import json

import pytest

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, results_of
from reproduce.annex.bench import benchmark_run
from reproduce.cli import main
from results.records import Metric, errors, read_record
from results.records.units import with_unit
from tests.points import made


def point(key, value=1.5, status="ok"):
    metrics = {"time": Metric(value, "s", "measured", (value,))} if status == "ok" else {}
    return made(key, metrics, status, series="copy", reason="why not", bytes=1)


@pytest.fixture
def fake(monkeypatch):
    """Lets `memory` give these points."""

    def use(*points):
        class Suite:
            CHAIN = 7  # which a note of this benchmark names

            @staticmethod
            def points(setup):
                for point in points:
                    if point is KeyboardInterrupt:
                        raise point
                    yield point

        monkeypatch.setattr(benchmark_run, "load", lambda benchmark: Suite)

    return use


def test_list_names_all(said):
    printed = said("bench", "list")
    for benchmark in BENCHMARKS.values():
        assert f"{benchmark.name} " in printed
        assert benchmark.title in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80


def test_list_as_json(as_json):
    assert [row["name"] for row in as_json("bench", "list")["benchmarks"]] == list(BENCHMARKS)


def test_a_run_writes_a_valid_record_and_prints_it(capsys, tmp_path):
    assert main(["bench", "run", "gemm", "--quick", "--device", "cpu", "--results", str(tmp_path)]) == 0
    record = read_record(tmp_path / "benchmarks" / "gemm" / "record.json")
    assert (record.kind, record.id, record.fidelity, record.scale) == ("benchmark", "gemm", "measured", "quick")
    assert record.provenance.command[-2:] == ("--results", tmp_path.name)
    assert "torch" in record.provenance.versions
    assert [p.key for p in record.points if p.series == CANARY] == ["canary/before", "canary/after"]
    said = capsys.readouterr().out
    for result in results_of(record):
        row = next(line for line in said.splitlines() if line.startswith(f"{result.key} "))
        assert with_unit(result.metrics["speed"].value, "FLOP/s", 3, zeros=True) in row
    assert said.splitlines()[-1] == "next: reproduce plot gemm"


def test_json_is_the_record_and_nothing_else(tmp_path, fake, as_json):
    fake(point("a"))
    document = as_json("bench", "run", "memory", "--device", "cpu", "--results", tmp_path)
    assert document["exit_code"] == 0
    assert document["benchmarks"] == [json.loads((tmp_path / "benchmarks/memory/record.json").read_text())]


@pytest.mark.parametrize(
    ("points", "code"),
    [
        ([point("a"), point("b", status="failed")], errors.POINTS_FAILED),
        ([point("a"), point("b", status="skipped")], errors.DONE),
        ([point("b", status="skipped")], errors.NOTHING_SELECTED),
        ([], errors.NOTHING_SELECTED),
    ],
)
def test_a_run_that_measured_nothing_or_failed_is_no_success(points, code, said, tmp_path, fake):
    fake(*points)
    printed = said("bench", "run", "memory", "--device", "cpu", "--results", tmp_path, code=code)
    for result in points:
        assert result.status == "ok" or f"{result.key}: {result.status}, why not" in printed


def test_an_interrupted_run_keeps_what_is_done_and_says_the_rest(refused, tmp_path, fake):
    fake(KeyboardInterrupt)
    words = ("bench", "run", "memory", "layer", "--device", "cpu", "--results", tmp_path)
    assert "reproduce bench run memory layer" in refused(*words, code=errors.INTERRUPTED)
    assert not list(tmp_path.rglob("record.json"))


def test_a_folder_that_cannot_be_written_is_one_line(refused, tmp_path, fake):
    fake(point("a"))
    (tmp_path / "file").write_text("")
    words = ("bench", "run", "memory", "--device", "cpu", "--results", tmp_path / "file")
    assert "cannot write" in refused(*words, code=errors.UNAVAILABLE)


def test_a_machine_that_was_not_quiet_is_noted(monkeypatch, tmp_path, fake, capsys):
    fake(point("a"))
    slow_later = iter([benchmark_run.Samples((1.0,)), benchmark_run.Samples((1.5,))])
    monkeypatch.setattr(benchmark_run, "canary", lambda device: next(slow_later))
    monkeypatch.setattr(benchmark_run, "_share_of_core", lambda: 0.5)
    main(["bench", "run", "memory", "--device", "cpu", "--results", str(tmp_path)])
    said = " ".join(capsys.readouterr().out.split())
    assert "not quiet: a process that computes got 50% of a core" in said
    assert "not quiet: the canary took 1.00e+00 s before and 1.50e+00 s after" in said
