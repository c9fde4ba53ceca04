"""Selective recomputation in the form of Korthikanti et al.'s tables: whose numbers stand where, and which program."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.annex.accuracy.ledger import predicted, studies
from reproduce.annex.papers.korthikanti import table_selective_recompute as module
from reproduce.experiment import quantities as q

LEDGER = next(study for study in studies() if study.id == "korthikanti_full")


def test_the_published_values_of_full_recomputation_are_the_ledgers(record):
    full = [point for point in record.points if point.key.endswith(module.FULL)]
    published = {point.key: point.paper[q.ITERATION.name] for point in full if q.ITERATION.name in point.paper}
    configs = {TrainingConfig.from_plain(point.parameters): point.key for point in record.points}
    assert {configs[row.config]: row.iteration_time for row in LEDGER.points.itertuples()} == {
        key: metric.value for key, metric in published.items()
    }


def test_the_program_is_korthikanti_et_als(record):
    assert LEDGER.software == module.SOFTWARE
    ours = {point.key: point.metrics[q.ITERATION.name].value for point in record.points if point.status == "ok"}
    assert [ours[f"{model}_full"] for model in module.ITERATIONS] == list(predicted(LEDGER).seconds)


def test_the_rows_of_three_sources_are_at_their_points(record):
    """22 numbers of Table 5 and the text, 14 of Table 4, 8 of Figure 8."""
    assert sum(len(point.paper) for point in record.points) == 19 + 14 + 8
    of = {point.key: {name: value.value for name, value in point.paper.items()} for point in record.points}
    assert of["530B_2240_GPUs_selective_sequence"]["iteration_time"] == 39.15
    assert of["22B_one_layer_full"]["layer_overhead"] == pytest.approx(0.39)
    assert of["22B_full"]["layer_overhead"] == pytest.approx(0.407)


def test_the_columns_agree_with_each_other(record):
    for point in record.points:
        if point.status != "ok":
            continue
        value = {name: metric.value for name, metric in point.metrics.items()}
        if point.series != module.ONE_LAYER:
            assert value[module.MODEL_FLOPS] < value[module.HARDWARE_FLOPS] < 0.77
        if point.parameters["recompute"] == "none" and not point.parameters.get("sequence_parallel", False):
            assert (value[module.OVERHEAD], value[module.SHARE]) == (0, 1)
    by_key = {point.key: point.metrics for point in record.points}
    one_layer = by_key["22B_one_layer_full"]
    forward, backward = (one_layer[name].value for name in (module.FORWARD, module.BACKWARD))
    assert one_layer["forward_time"].value == forward
    assert one_layer["backward_time"].value + one_layer["recompute_time"].value == pytest.approx(backward)
