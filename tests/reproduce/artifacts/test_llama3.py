"""Llama 3's Section 3.3: one stated program for all rows, its layouts, and the counts behind its percentages."""

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.cluster import with_program
from reproduce.annex.papers.beyond import fig_scaling
from reproduce.annex.papers.llama3 import table_4, table_4_columns, table_5
from reproduce.experiment import catalog, papers, published
from reproduce.experiment.margins import read
from reproduce.experiment.told import entries
from results import ROOT
from results.records import read_record

FIRST = [point for point in table_4.points() if point.series == table_4.FIXED]


def test_layouts_have_126_layers_with_an_empty_first_and_last_chunk():
    for point in FIRST:
        config = TrainingConfig.from_plain(point.parameters)
        assert config.parallel.n == point.parameters["gpus"]
        assert config.parallel.B * config.model.seq == 16 * 2**20
        assert config.parallel.placement.stages[0][0] == 0
        assert (config.model.all_layers, config.layers_per_chunk) == (126, 1)


def test_all_rows_have_one_program_and_only_it_is_scored():
    assert {point.series for point in table_4.points() if point.paper} == {table_4.FIXED}
    differing = {"gpus", "d", "c", "seq", "B"}
    same = [{k: v for k, v in point.parameters.items() if k not in differing} for point in FIRST]
    assert same[0] == same[1] == same[2]


@pytest.mark.parametrize("point", FIRST, ids=lambda point: point.label)
def test_every_row_fits_and_lies_inside_the_interval_of_runs_on_h100(point):
    cluster = with_program(load_cluster("h100"), point.parameters["program"])
    estimate = simulate(TrainingConfig.from_plain(point.parameters), cluster)
    assert estimate.fits
    margin = read("h100").of("model_throughput_per_gpu", point.parameters)
    interval = margin.interval(estimate.model_throughput_per_gpu)
    assert interval.low < point.paper["model_throughput_per_gpu"].value < interval.high


def test_eighteen_sentences_two_of_them_in_two_have_a_judge_or_a_reason():
    theirs = [entry for entry in entries(papers.paper("llama3")) if entry["place"] not in ("not in the paper",)]
    judged = [entry for entry in theirs if entry["id"] != "throughputs_of_table_4"]
    assert len(judged) == 20
    assert [entry["id"] for entry in judged if "reason" in entry] == [
        "order_of_axes",
        "weights_gathered_once",
        "fewer_messages_than_breadth_first",
        "effective_above_90_percent",
    ]


def test_the_share_of_context_that_a_claim_names_is_the_recorded_one():
    record = read_record(ROOT / "results/reference/llama3/table_4/simulated/record.json")
    claim = next(each for each in record.claims if each.id == "context_costs_little")
    (point,) = (each for each in record.points if each.series == table_4.FIXED and each.parameters["c"] == 16)
    assert f"the simulated {point.metrics[table_4.CONTEXT].value:.1%} of the iteration" in claim.tolerance


def test_columns_and_counts_follow():
    last = table_4_columns.points()[-1]
    assert table_4_columns.derive(last) == pytest.approx(
        {"model_flops_utilization": 380 / 989, "gpus_used": 16384, "batch_tokens": 2**24}
    )
    said = {point.key: table_5.derive(point) for point in table_5.points()}
    assert said["text_unexpected"][table_5.COUNT] == 419
    assert said["text_gpu"][table_5.COUNT] == 268
    assert said["text_gpu"][table_5.AS_PRINTED] == pytest.approx(0.587)
    assert said["text_all"][table_5.BETWEEN] == pytest.approx(54 * 86400 / 466)
    assert said["row_0"][table_5.SHARE] == pytest.approx(148 / 419)
    assert len(published.rows(table_5.ID)) == 18
    assert catalog.load("llama3/table_5").paper == "llama3"


def test_the_figure_over_all_years_names_every_series_beside_its_points():
    points = fig_scaling.points()
    assert set(fig_scaling.WORDS) == {point.series for point in points}
    ours = {point.key: point for point in points if point.key.startswith("llama3")}
    assert len(ours) == 3
    assert all(point.parameters["cluster"] == "h100" for point in ours.values())
