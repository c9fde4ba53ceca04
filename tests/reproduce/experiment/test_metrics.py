"""The table of metrics: a toy one is a row, and what keeps, prints, bounds or describes metrics has it."""

import csv
import io
import json
import re

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.estimate import BUBBLE_CAUSES, PHASES
from reproduce.annex.page import bridge
from reproduce.cli import main
from reproduce.experiment import catalog
from reproduce.experiment.metrics import METRICS, MetricDef, answers, of_every_point
from reproduce.running.simulated import simulated_metrics
from results import ROOT
from results.records import UNITS, read_record, validation
from results.records.errors import DONE

GPT3 = {"layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "B": 12}
SIMULATED = sorted((ROOT / "results" / "reference").glob("*/simulated*/record.json"))
GUIDE = re.search(r"^MetricDef\(\n.*?^\)\n", (ROOT / "docs" / "adding.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def toy(monkeypatch, tmp_path):
    """The guide's metric, with its row and its property in the schema and nothing else."""
    assert GUIDE is not None
    row = eval(GUIDE[0], {"MetricDef": MetricDef})
    monkeypatch.setitem(METRICS, row.name, row)
    for file in validation.SCHEMAS.glob("*.json"):
        schema = json.loads(file.read_text(encoding="utf-8"))
        if file.name == "common-1.schema.json":
            schema["$defs"]["estimate"]["properties"][row.name] = {"type": "number", "minimum": 0}
        (tmp_path / file.name).write_text(json.dumps(schema))
    caches = (validation.validator, validation._compiled, validation._schemas)
    monkeypatch.setattr(validation, "SCHEMAS", tmp_path)
    for cache in caches:
        cache.cache_clear()
    yield row
    for cache in caches:
        cache.cache_clear()


def test_a_toy_metric_is_in_record_and_table_with_an_interval(toy, tmp_path):
    assert main(["fig_interleaved", "--results", str(tmp_path)]) == DONE
    folder = tmp_path / "fig_interleaved" / "simulated"
    point = read_record(folder / "record.json").points[0]
    metric, time = point.metrics[toy.name], point.metrics["iteration_time"]
    assert (metric.unit, metric.origin) == ("s", "simulated")
    assert metric.value == pytest.approx(time.value * 96 / (point.parameters["B"] * 2048))
    assert metric.interval.low / metric.value == pytest.approx(time.interval.low / time.value)
    rows = csv.DictReader(io.StringIO((folder / "table.csv").read_text()))
    assert toy.name in {row["metric"] for row in rows}


def test_a_toy_metric_is_in_every_answer(toy, tmp_path, points_file, said, as_json):
    points = points_file(GPT3, {**GPT3, "heads": 7})
    ok, invalid = as_json("simulate", points, code=4)["points"]
    assert ok[toy.name] == pytest.approx(ok["iteration_time"] * 96 / (12 * 2048))
    assert invalid[toy.name] is None
    assert ok["intervals"][toy.name]["low"] < ok[toy.name]
    printed = said("simulate", points, "--columns", "GPU time per token", code=4)
    assert f"{ok[toy.name] / 1e-6:.2f}" in printed
    model = ["--layers", "4", "--hidden", "512", "--heads", "8", "--gpus", "2", "--batch", "4"]
    assert as_json("plan", *model, "--results", tmp_path)["configurations"][0][toy.name] > 0
    assert {"heading": "GPU time per token (us)", "name": toy.name}.items() <= bridge.start()["metrics"][-1].items()


def test_the_schema_of_an_estimate_has_the_answers_metrics():
    schema = json.loads((validation.SCHEMAS / "common-1.schema.json").read_text(encoding="utf-8"))
    properties = schema["$defs"]["estimate"]["properties"]
    numbers = {name for name, property in properties.items() if property["type"] == "number"}
    own = {"sequences_per_s"}  # of the whole cluster: `reproduce simulate` alone gives it
    assert numbers == {metric.name for metric in answers()} - own


def test_the_glossary_has_the_line_of_every_row():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines()
    lines = [f"| `{metric.name}` | {metric.unit} | {metric.meaning} |" for metric in METRICS.values()]
    assert [line for line in lines if line not in page] == []


def test_every_row_has_a_unit_of_the_records_and_every_number_of_an_estimate_a_row():
    assert {metric.unit for metric in METRICS.values()} <= set(UNITS)
    cluster = load_cluster()
    config = TrainingConfig(ModelConfig(8, 1024, 8), ParallelConfig(p=2, b=1, B=4))
    estimate = simulate(config, cluster, bubble_times=True)
    metrics = simulated_metrics(estimate, cluster, METRICS.values())
    names = [f"{phase}_time" for phase in PHASES] + [f"bubble_{cause}_time" for cause in BUBBLE_CAUSES]
    assert {*names, *(f"{use}_traffic" for use in estimate.traffic)} <= metrics.keys()
    assert sum(metrics[name].value for name in names[: len(PHASES)]) == pytest.approx(estimate.iteration_time)


@pytest.mark.parametrize("path", SIMULATED, ids=lambda path: "-".join(path.parts[-3:-1]))
def test_the_committed_records_have_todays_metrics(path):
    record = read_record(path)
    kept = of_every_point(catalog.load(record.id).quantities)
    for point in record.points:
        if point.status == "ok":
            assert {metric.name: metric.unit for metric in kept}.items() <= {
                name: metric.unit for name, metric in point.metrics.items()
            }.items()
