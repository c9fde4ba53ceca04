"""Records of version 1: read and written as version 2, times of passes as timelines."""

import json

import pytest

from results import ROOT
from results.records import Record, RecordedEvent, RecordError, read_record, write_record

REFERENCE = ROOT / "results" / "reference"


def test_records_are_read_and_written_as_version_2(tmp_path):
    """The smallest committed record of each fidelity; `compare` reads all of them."""
    sizes = {file: file.stat().st_size for file in REFERENCE.rglob("record.json")}
    smallest = {file.parent.name: file for file in sorted(sizes, key=lambda file: -sizes[file])}
    assert {"derived", "simulated", "emulated"} <= smallest.keys()
    for file in smallest.values():
        record = read_record(file)
        write_record(record, tmp_path / "record.json")
        assert json.loads((tmp_path / "record.json").read_text())["schema"] == "ptdp-record/2"
        assert read_record(tmp_path / "record.json") == record


def version_1():
    """A record of version 1: 1F1B on 2 ranks with 2 microbatches, when its passes ran and were predicted to run."""
    metrics = {"bubble_fraction": {"value": 0.5, "unit": "1", "origin": "emulated"}}
    for prefix, origin, late in (("", "emulated", 0.5), ("predicted_", "simulated", 0.0)):
        for rank, begins in enumerate(([0, 1, 4, 6], [1, 2, 4, 5])):
            for side, shift in (("begins", late), ("ends", late + 1)):
                times = [time + shift for time in begins]
                metric = {"value": times[-1], "unit": "s", "origin": origin, "samples": times}
                metrics[f"{prefix}{side}_rank_{rank}"] = metric
    host = {"os": "Linux", "machine": "x86_64", "cpu": None, "logical_cores": 2, "memory_bytes": None, "gpus": []}
    provenance = {"commit": None, "dirty": None, "versions": {}, "host": {**host, "gpu_count": 0}, "command": []}
    provenance |= {"seed": None, "started": "2026-01-01T00:00:00Z", "duration_s": 1, "cluster": None}
    point = {"key": "1f1b", "series": "", "label": "", "status": "ok", "reason": None, "fingerprint": "0" * 64}
    point |= {"parameters": {"schedule": "1f1b", "p": 2, "m": 2, "v": 1}, "metrics": metrics, "paper": {}}
    document = {"schema": "ptdp-record/1", "kind": "artifact", "id": "drawn", "title": "Drawn", "paper": None}
    document |= {"fidelity": "emulated", "scale": "laptop", "state": "complete", "points": [point], "claims": []}
    return {**document, "provenance": {**provenance, "code_digest": None}, "notes": []}


def test_begins_and_ends_of_passes_are_timelines():
    (point,) = Record.from_json(version_1()).points
    assert set(point.metrics) == {"bubble_fraction"}
    emulated, simulated = point.timelines
    assert (emulated.origin, simulated.origin) == ("emulated", "simulated")
    first = [("F", 0, 0, 0, 1), ("F", 0, 1, 1, 2), ("B", 0, 0, 4, 5), ("B", 0, 1, 6, 7)]
    last = [("F", 1, 0, 1, 2), ("B", 1, 0, 2, 3), ("F", 1, 1, 4, 5), ("B", 1, 1, 5, 6)]
    assert simulated.ranks == tuple(tuple(RecordedEvent(*event) for event in rank) for rank in (first, last))
    assert emulated.ranks[1][1] == RecordedEvent("B", 1, 0, 2.5, 3.5)


@pytest.mark.parametrize(
    ("older", "today"),
    [
        ({"dtype": "float32"}, {"dtype": "fp32"}),
        ({"dtype": "bfloat16"}, {"dtype": "bf16"}),
        ({"dtype": "fp16", "scheme": "ptdp"}, {"dtype": "fp16", "scheme": "ptdp"}),
        ({"scheme": "zero3", "data_parallel": "local"}, {"scheme": "zero3", "data_parallel": "zero3"}),
    ],
)
def test_parameters_are_read_in_todays_words(older, today):
    document = version_1()
    document["points"][0]["parameters"].update(older)
    (point,) = Record.from_json(document).points
    assert point.parameters == version_1()["points"][0]["parameters"] | today


def test_times_of_other_passes_than_the_schedule_s_are_refused():
    document = version_1()
    document["points"][0]["metrics"]["ends_rank_0"]["samples"].pop()
    with pytest.raises(RecordError, match=r"^a file: /points/0/metrics: found begins and ends of other passes"):
        Record.from_json(document, "a file")


def test_a_bad_record_of_version_1_is_refused_by_the_schema_of_version_1():
    with pytest.raises(RecordError, match="/kind: found nothing; needs this key"):
        Record.from_json({"schema": "ptdp-record/1"})
