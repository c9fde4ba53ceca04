"""Selective recomputation in the form of Korthikanti et al.'s tables: whose numbers stand where, and which program."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.analysis.scoring.ledger import predicted, studies
from reproduce.experiment import quantities as q
from reproduce.papers.beyond import table_selective_recompute as module

LEDGER = next(study for study in studies() if study.id == "korthikanti_full")


def test_the_published_values_are_the_ledgers_and_no_others(record):
    published = {
        point.key: point.metrics[module.PUBLISHED] for point in record.points if module.PUBLISHED in point.metrics
    }
    assert {metric.origin for metric in published.values()} == {"paper"}
    configs = {TrainingConfig.from_plain(point.parameters): point.key for point in record.points}
    assert {configs[row.config]: row.iteration_time for row in LEDGER.points.itertuples()} == {
        key: metric.value for key, metric in published.items()
    }
    assert not any(point.paper for point in record.points)  # which would be scored as the paper's


def test_the_program_is_korthikanti_et_als(record):
    assert LEDGER.software == module.SOFTWARE
    ours = {point.key: point.metrics[q.ITERATION.name].value for point in record.points if point.status == "ok"}
    assert [ours[f"{model}_full"] for model in module.PUBLISHED_S] == list(predicted(LEDGER).seconds)


def test_rows_that_their_tables_have_are_marked(record):
    marks = {point.key: point.parameters["published"] for point in record.points}
    assert sum(mark == "Table 5" for mark in marks.values()) == 4
    assert {key for key, mark in marks.items() if mark == "withheld"} == {
        *(key for key in marks if key.startswith("22B_one_layer")),
        *(f"{model}_selective_sequence" for model in module.PUBLISHED_S),
    }


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
