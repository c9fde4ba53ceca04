"""`reproduce compare`: what differs, what cannot be compared and why, and the exit codes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reproduce.annex.compare.compare import Key, StatedChange, compare, load
from reproduce.cli import main
from results import ROOT
from results.records import (
    ClaimResult,
    ClusterRef,
    Host,
    Metric,
    PointResult,
    Provenance,
    Record,
    RecordedEvent,
    RecordedTimeline,
    errors,
    write_record,
)

HOST = Host("Linux 6.1", "x86_64", "EPYC", 16, 2**37, ("H200",), 1)


def point(key="x1", value=1.0, **changes):
    origin = changes.pop("origin", "measured")
    samples = changes.pop("samples", (value,) if value is not None else None)
    metric = Metric(value, changes.pop("unit", "s"), origin, samples if origin == "measured" else None)
    fields = {
        "parameters": {"p": 2},
        "status": "ok",
        "reason": None,
        "fingerprint": "0" * 64,
        "metrics": {"time": metric},
    }
    return PointResult(key=key, series="", label=key, **(fields | changes))


def record(*points, fidelity="measured", host=HOST, **changes):
    cluster = changes.pop("cluster", ClusterRef("selene", "a" * 64) if fidelity == "simulated" else None)
    made_by = Provenance(None, None, {"python": "3.11.7"}, host, ("x",), None, "2026-01-01T00:00:00Z", 1.0, cluster)
    fields = {"kind": "benchmark", "id": "gemm", "title": "GEMM", "paper": None, "scale": "full", "state": "complete"}
    return Record(fidelity=fidelity, provenance=made_by, points=points, **(fields | changes))


def pair(a, b, across_hosts=False):
    sets = ({Key(each.kind, each.id, each.fidelity, each.scale): each} for each in (a, b))
    (only,) = compare(*sets, across_hosts).pairs
    return only


def claim(verdict, id="c1"):
    return ClaimResult(id, "It is fast.", "5.1", "simulated", None, verdict, "measured so")


def simulated(value, **changes):
    return record(point(value=value, origin="simulated"), fidelity="simulated", **changes)


def test_a_difference_says_point_metric_and_how_much():
    compared = pair(record(point(value=2.0), point("x2")), record(point(value=3.0), point("x2")))
    (difference,) = compared.differences
    assert (difference.point, difference.metric, difference.relative) == ("x1", "time", 0.5)
    assert (compared.points, compared.values, compared.obstacles) == (2, 2, ())


def test_timelines_of_one_origin_are_compared_and_others_are_missing():
    def timelines(end, *origins, **changes):
        rank = (RecordedEvent("F", 0, 0, 0.0, end),)
        return record(point(timelines=tuple(RecordedTimeline(origin, (rank, ())) for origin in origins), **changes))

    compared = pair(timelines(1.0, "emulated", "simulated"), timelines(1.5, "emulated"))
    apart = StatedChange("emulated timeline of x1", "ends at 1 s", "ends at 1.5 s")
    assert compared.changes == (apart,)
    assert (compared.only_in_a, compared.only_in_b) == (("simulated timeline of x1",), ())
    compared = pair(timelines(1.0, "emulated", "simulated"), timelines(1.5, "emulated", status="oom", reason="full"))
    assert compared.changes == (StatedChange("status of x1", "ok", "oom"), apart)
    assert compared.only_in_a == ()  # the status says why
    assert pair(timelines(1.0, "emulated"), timelines(1.0, "emulated")).changes == ()


def test_a_negative_and_a_zero_value_have_their_own_relative_change():
    (difference,) = pair(record(point(value=-2.0)), record(point(value=-3.0))).differences
    assert difference.relative == -0.5
    (difference,) = pair(record(point(value=0.0)), record(point(value=3.0))).differences
    assert difference.relative is None


@pytest.mark.parametrize(
    ("a", "b", "apart"), [((1.0, 1.2), (1.1, 1.3), False), ((1.0, 1.2), (1.3, 1.4), True), ((3.0,), (1.0, 2.0), True)]
)
def test_samples_overlap_or_are_apart(a, b, apart):
    (difference,) = pair(record(point(value=a[0], samples=a)), record(point(value=b[0], samples=b))).differences
    assert difference.samples_apart is apart


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("cpu", "Xeon", "host: cpu is EPYC in A, Xeon in B"),
        ("logical_cores", 2, "host: logical_cores is 16 in A, 2 in B"),
        ("gpus", (), "host: gpus is H200 in A, none in B"),
        ("gpu_count", 8, "host: gpu_count is 1 in A, 8 in B"),
    ],
)
@pytest.mark.parametrize("fidelity", ["measured", "emulated"])
def test_time_does_not_compare_over_classes_of_hosts(field, value, says, fidelity):
    other = replace(HOST, **{field: value})
    compared = pair(record(point(), fidelity=fidelity), record(point(value=2.0), fidelity=fidelity, host=other))
    assert compared.obstacles == (says,)
    assert compared.differences == ()


def test_another_kernel_or_memory_is_the_same_class_of_host():
    other = replace(HOST, os="Linux 5.4", memory_bytes=1)
    assert pair(record(point()), record(point(), host=other)).obstacles == ()


def test_simulated_results_compare_over_hosts():
    compared = pair(simulated(1.0), simulated(1.1, host=Host("Darwin", "arm64", "M3", 8, 2**34)))
    assert compared.obstacles == ()
    assert len(compared.differences) == 1


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        (
            ClusterRef("selene", "b" * 64),
            "cluster: the file of selene is another one (digest aaaaaaaa in A, bbbbbbbb in B)",
        ),
        (ClusterRef("mine", "a" * 64), "cluster: selene in A, mine in B"),
        (None, "cluster: selene in A, none in B"),
    ],
)
def test_another_cluster_is_another_experiment(cluster, says):
    assert pair(simulated(1.0), simulated(1.0, cluster=cluster)).obstacles == (says,)


def test_another_specification_of_a_point_is_another_experiment():
    compared = pair(record(point()), record(point(parameters={"p": 4, "t": 2})))
    assert compared.obstacles == ("specification of x1: p=2 in A, 4 in B", "specification of x1: t=None in A, 2 in B")


def test_units_must_agree():
    assert pair(record(point()), record(point(unit="B"))).obstacles == ("unit of time of x1: s in A, B in B",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fidelity": "emulated"}, "fidelity: A is measured, B is emulated at scale full"),
        ({"scale": "quick"}, "scale: A is measured at scale full, B is measured at scale quick"),
    ],
)
def test_another_fidelity_or_scale_is_said(changes, says):
    assert pair(record(point()), record(point(), **changes)).obstacles == (says,)


def test_a_status_a_verdict_and_what_one_side_lacks_are_said():
    failed = point(value=None, status="oom", reason="needs 99 GB", metrics={})
    compared = pair(record(point(), point("old")), record(failed, point("new")))
    assert compared.changes == (StatedChange("status of x1", "ok", "oom"),)
    assert (compared.only_in_a, compared.only_in_b) == (("point old",), ("point new",))


def test_equal_fingerprints_with_other_simulated_values_are_noticed():
    assert any("same fingerprint" in note for note in pair(simulated(1.0), simulated(2.0)).notes)
    assert not any("same fingerprint" in note for note in pair(record(point()), record(point(value=2.0))).notes)


def test_measured_sessions_are_no_regression_test():
    assert any("reproduce gate decides" in note for note in pair(record(point()), record(point(value=2.0))).notes)


@pytest.mark.parametrize(
    ("a", "b", "fails"),
    [
        (1.0, 1.0499, []),
        (1.0, 1.0501, ["time of x1 differs by more than 0.05: +5.0%"]),
        (1.0, 0.9, ["time of x1 differs by more than 0.05: -10.0%"]),
        (0.0, 0.1, ["time of x1 differs by more than 0.05: from 0"]),
    ],
)
def test_a_difference_fails_just_outside_the_limit(a, b, fails):
    assert pair(simulated(a), simulated(b)).failures(0.05, claims=True) == fails
    assert pair(simulated(a), simulated(b)).failures(None, claims=True) == []


def test_measured_values_fail_only_where_samples_are_apart():
    a, b = record(point(value=1.0, samples=(1.0, 1.6))), record(point(value=1.5, samples=(1.5, 1.7)))
    assert pair(a, b).failures(0.05, claims=False) == []
    assert pair(record(point(value=1.0)), b).failures(0.05, claims=False) != []


def test_what_b_lacks_and_what_is_no_longer_ok_fails_and_what_is_new_does_not():
    failed = point(value=None, status="oom", reason="needs 99 GB", metrics={})
    compared = pair(record(point(), point("old")), record(failed, point("new")))
    assert compared.failures(0.5, claims=False) == ["status of x1: ok -> oom", "only in A: point old"]
    assert pair(record(failed), record(point())).failures(0.5, claims=False) == []


@pytest.mark.parametrize(
    ("old", "new", "fails"),
    [
        ("holds", "inconclusive", True),
        ("holds", "contradicted", True),
        ("inconclusive", "contradicted", True),
        ("not testable here", "inconclusive", False),
        ("contradicted", "inconclusive", False),
        ("inconclusive", "holds", False),
    ],
)
def test_a_verdict_fails_if_it_is_worse(old, new, fails):
    compared = pair(record(point(), claims=(claim(old),)), record(point(), claims=(claim(new),)))
    assert bool(compared.failures(None, claims=True)) is fails
    assert compared.failures(0.1, claims=False) == []


def test_a_claim_that_b_does_not_judge_fails():
    compared = pair(record(point(), claims=(claim("holds"),)), record(point()))
    assert compared.failures(0.1, claims=True) == ["only in A: claim c1"]
    assert compared.failures(0.1, claims=False) == []


def test_across_hosts_there_are_numbers_and_environments_and_no_verdict():
    a, b = record(point()), record(point(value=2.0), host=replace(HOST, cpu="Xeon"))
    b = replace(b, provenance=replace(b.provenance, environment={"cpu_governor": "powersave", "cpu_mhz": "800"}))
    compared = pair(a, b, across_hosts=True)
    assert (compared.obstacles, len(compared.differences)) == ((), 1)
    assert "Xeon" in compared.environments[1]
    assert "cpu governor powersave" in compared.environments[1]
    assert compared.failures(0.01, claims=True) == []
    assert any(note == "conditions: not recorded in A, cpu_governor powersave in B" for note in compared.notes)
    assert pair(a, record(point(value=2.0)), across_hosts=True).environments == ()


@pytest.fixture
def sets(tmp_path):
    def write(a, b):
        for side, result in (("a", a), ("b", b)):
            write_record(result, tmp_path / side / result.id / result.fidelity / "record.json")
        return ["compare", str(tmp_path / "a"), str(tmp_path / "b")]

    return write


def test_differences_are_a_result(sets, said):
    out = said(*sets(record(point(value=1.0)), record(point(value=1.5))))
    assert "gemm (measured, scale full): 1 of 1 values differ" in out
    assert "  time [measured]  1         x1         1 s  1.5 s  +50%           1 of 1 apart" in out
    assert "1 experiment in both: 0 the same, 1 differ" in out


def test_fail_on_exits_6_and_says_why(sets, said):
    arguments = sets(record(point(value=1.0)), record(point(value=1.5)))
    assert "fails" not in said(*arguments, "--fail-on", "60%")
    out = said(*arguments, "--fail-on", "5%", code=errors.REGRESSED)
    assert "gemm (measured, scale full): time of x1 differs by more than 0.05: +50.0%" in out
    assert main([*arguments, "--fail-on", "0.05"]) == errors.USAGE


def test_a_record_that_b_lacks_fails(sets, tmp_path):
    arguments = sets(record(point()), record(point()))
    write_record(record(point(), id="p2p"), tmp_path / "a" / "p2p" / "record.json")
    assert main(arguments) == errors.DONE
    assert main([*arguments, "--fail-on", "5%"]) == errors.REGRESSED


def test_several_sets_stand_side_by_side(sets, tmp_path, capsys, as_json):
    arguments = sets(record(point(value=1.0), point("x2")), record(point(value=1.5), point("x2")))
    write_record(record(point(value=1.0), point("x2", value=0.5)), tmp_path / "c" / "record.json")
    assert main([*arguments, str(tmp_path / "c")]) == errors.DONE
    table = capsys.readouterr().out.split("all, where they differ most:\n")[1].splitlines()
    assert table[0].split() == ["experiment", "value", "at", "A", "B", "C"]
    assert re.split(" {2,}", table[1])[1:] == ["time [measured]", "x1", "1 s", "1.5 s (+50%)", "as A, or none"]
    document = as_json(*arguments, tmp_path / "c")
    assert document["b"].endswith("/b")
    assert [other["b"][-2:] for other in document["others"]] == ["/c"]


def test_json_has_everything(sets, as_json):
    arguments = sets(record(point(value=1.0)), record(point(value=1.5, samples=(0.5, 2.0))))
    (compared,) = as_json(*arguments)["pairs"]
    assert compared["comparable"] is True
    assert compared["differences"] == [
        {
            "point": "x1",
            "metric": "time",
            "a": 1.0,
            "b": 1.5,
            "relative": 0.5,
            "unit": "s",
            "origin": "measured",
            "samples_apart": False,
        }
    ]


def test_what_cannot_be_compared_exits_8_and_says_why(sets, said):
    arguments = sets(record(point()), record(point(value=2.0), host=replace(HOST, cpu="Xeon")))
    out = said(*arguments, code=errors.INVALID_RESULTS)
    assert "cannot be compared" in out
    assert "host: cpu is EPYC in A, Xeon in B" in out
    assert "2 s" not in out


def test_nothing_in_common_exits_9(sets, capsys):
    assert main(sets(record(point()), record(point(), id="p2p"))) == errors.NOTHING_SELECTED
    assert capsys.readouterr().err == "reproduce: nothing in common: A has gemm, B has p2p\n"


def test_a_file_that_is_no_record_exits_8(tmp_path, refused):
    (tmp_path / "record.json").write_text("{}")
    line = refused("compare", tmp_path, tmp_path, code=errors.INVALID_RESULTS)
    assert "record.json: /schema: found nothing" in line


def test_two_records_of_one_experiment_are_ambiguous(tmp_path, refused):
    for folder in ("one", "two"):
        write_record(record(point()), tmp_path / folder / "record.json")
    assert "are both gemm (measured, scale full)" in refused("compare", tmp_path, tmp_path, code=errors.INVALID_RESULTS)


def test_records_that_only_their_folder_tells_apart_meet_by_it(tmp_path, said):
    """Such as trials of the gate on other projects, beside those on ours."""
    for side, folders in (("a", ("measured", "tomli", "networkx")), ("b", ("measured", "tomli"))):
        for value, folder in enumerate(folders):
            trials = record(point(value=float(value)), id="gate_trials", scale="laptop")
            write_record(trials, tmp_path / side / "gate_trials" / folder / "record.json")
    printed = said("compare", tmp_path / "a", tmp_path / "b")
    assert "2 experiments in both: 2 the same, 0 differ" in printed
    assert "only in A: networkx/gate_trials (measured, scale laptop)" in printed
    one, other = (tmp_path / "a" / "gate_trials" / name for name in ("measured", "tomli"))
    assert "1 experiment in both: 0 the same, 1 differ" in said("compare", one, other)


@pytest.mark.parametrize(("make", "code"), [(False, errors.USAGE), (True, errors.NOTHING_SELECTED)])
def test_a_folder_that_is_not_there_or_empty(tmp_path, make, code):
    if make:
        (tmp_path / "empty").mkdir()
    assert main(["compare", str(tmp_path / "empty"), str(tmp_path)]) == code


@pytest.mark.slow
def test_the_committed_results_are_the_same_as_themselves(said):
    folder = str(ROOT / "results" / "reference")
    out = said("compare", folder, folder)
    assert f"{len(load(Path(folder)))} experiments in both: {len(load(Path(folder)))} the same, 0 differ" in out
    assert "cannot be compared" not in out
