"""The tidy frame: a row per point and metric, the same columns for every record, the record's own numbers."""

from dataclasses import replace

import pandas
import pytest

from reproduce.output.columns import FIXED
from reproduce.output.frame import concatenated, frame
from results import ROOT
from results.records import Metric, read_record

REFERENCE = ROOT / "results" / "reference"


def test_every_number_of_the_record_is_a_row(figure_12):
    table = frame(figure_12.record)
    expected = {
        (point.key, name, metric.value, metric.unit, metric.origin)
        for point in figure_12.record.points
        for name, metric in point.metrics.items()
    }
    rows = table[["key", "metric", "value", "unit", "origin"]].itertuples(index=False, name=None)
    assert set(rows) == expected
    assert len(table) == len(expected)
    assert set(table.artifact) == {"fig_interleaved"}
    assert set(table.cluster) == {"selene"}


def test_parameters_and_the_papers_values_stand_beside_their_metric(figure_12):
    table = frame(figure_12.record).set_index(["key", "metric"])
    for point in figure_12.record.points:
        row = table.loc[(point.key, "throughput_per_gpu")]
        assert row.paper == point.paper["throughput_per_gpu"].value
        assert {name: row[name] for name in point.parameters} == dict(point.parameters)
        assert pandas.isna(table.loc[(point.key, "iteration_time"), "paper"])


def test_columns_are_the_same_but_for_the_parameters(figure_12):
    table = frame(figure_12.record)
    parameters = [name for name in table.columns if name not in FIXED]
    assert parameters == sorted(figure_12.record.points[0].parameters)
    assert [name for name in table.columns if name in FIXED] == list(FIXED)


def test_a_point_without_a_result_is_a_row_with_its_reason(with_point):
    record = with_point(status="invalid", reason="p=5 does not divide 96", metrics={}, paper={})
    (row,) = frame(record).query("status == 'invalid'").to_dict("records")
    assert row["reason"] == "p=5 does not divide 96"
    assert pandas.isna(row["value"])
    assert pandas.isna(row["metric"])


def test_out_of_memory_keeps_the_papers_value(with_point):
    record = with_point(status="oom", reason="needs 99 GB", metrics={})
    (row,) = frame(record).query("status == 'oom'").to_dict("records")
    assert (row["metric"], row["paper"], row["unit"]) == ("throughput_per_gpu", 82e12, "FLOP/s")
    assert pandas.isna(row["value"])


def test_low_and_high_hold_80_percent_of_the_samples(with_point):
    metric = Metric(5.0, "s", "measured", tuple(float(sample) for sample in range(11)))
    (row,) = frame(with_point(metrics={"time": metric})).query("metric == 'time'").to_dict("records")
    assert (row["low"], row["value"], row["high"]) == (1.0, 5.0, 9.0)


def test_a_parameter_called_like_a_column_keeps_its_value(figure_12):
    first = figure_12.record.points[0]
    points = (replace(first, parameters={"unit": "kg", "p": 4}),)
    table = frame(replace(figure_12.record, points=points))
    assert set(table.parameter_unit) == {"kg"}
    assert "kg" not in set(table.unit)


@pytest.mark.parametrize("pair", [("fig_interleaved", "fig_bubble"), ("accuracy", "table_checkpoint")])
def test_frames_of_different_records_concatenate(pair):
    records = [read_record(next((REFERENCE / id).rglob("record.json"))) for id in pair]
    tables = [frame(record) for record in records]
    both = concatenated(tables)
    assert len(both) == sum(map(len, tables))
    assert set(both.columns) == set(tables[0].columns) | set(tables[1].columns)
    assert both.value.dropna().tolist() == [value for table in tables for value in table.value.dropna()]


def test_integers_stay_integers_beside_missing_ones(figure_12):
    bubble = frame(read_record(REFERENCE / "fig_bubble" / "derived" / "record.json"))
    both = concatenated([frame(figure_12.record), bubble])
    assert both.layers.dtype == "Int64"
    assert both.scatter_gather.dtype == "boolean"
    assert both.layers.isna().any()
