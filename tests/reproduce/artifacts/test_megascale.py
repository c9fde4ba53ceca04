"""MegaScale's Table 2 by variants and against itself, and the figure from 32 to 12,288 GPUs."""

import pytest

from reproduce.annex.papers.beyond import fig_scaling
from reproduce.annex.papers.megascale import table_2, table_2_columns
from reproduce.experiment import catalog, published
from reproduce.experiment import quantities as q

ROWS = {(row["method"], row["gpus"]): row for row in published.rows(table_2.ID)}


def test_only_the_variant_fixed_beforehand_is_scored():
    """Others are shown with their errors: a choice among them after the fact is none."""
    points = table_2.points()
    assert {point.series for point in points if point.paper} == {table_2.FIXED}
    assert len(points) == 8 * len(table_2.VARIANTS)


@pytest.mark.parametrize("flags", [flags for flags in table_2.VARIANTS.values() if flags])
def test_every_other_variant_changes_one_flag(flags):
    changed = {name for name, value in flags.items() if table_2.USUAL.get(name, "operators") != value}
    assert changed == set(flags)
    assert len(changed) == 1 or changed == {"attention", "recompute"}  # fused attention leaves nothing to recompute


def test_columns_follow_from_the_iteration_time():
    """6144 sequences of 2048 tokens in 8.57 s are 1.468 million tokens a second, 2.365 days for 300 billion."""
    (point,) = (p for p in table_2_columns.points() if p.key == "megatron_lm_12288")
    derived = table_2_columns.derive(point)
    assert derived["tokens_per_s"] == pytest.approx(6144 * 2048 / 8.57)
    assert derived["training_time"] == pytest.approx(2.365, abs=0.001)
    assert derived["aggregate_throughput"] == pytest.approx(0.412 * 12288 * 312e12)


def test_four_rows_have_flops_that_disagree_with_their_mfu():
    """As transcribed: by more than 2%."""
    apart = [
        point.key
        for point in table_2_columns.points()
        if abs(table_2_columns.derive(point)["aggregate_throughput"] / point.paper["aggregate_throughput"].value - 1)
        > 0.02
    ]
    assert len(apart) == 4


def test_the_figure_counts_the_models_flops_in_both_papers():
    """An iteration time and a throughput that counts recomputation come to one measure."""
    points = {point.key: point for point in fig_scaling.points()}
    last = points["megascale_12288"]
    row = ROWS[table_2.MEGATRON, 12288]
    assert last.paper[q.MODEL_THROUGHPUT.name].value == pytest.approx(
        row["model_flops_utilization"] / 100 * 312e12, rel=0.01
    )
    first = catalog.load("fig_scaling").points()[0]
    assert first.paper[q.MODEL_THROUGHPUT.name].value == pytest.approx(137e12 * 3 / 4, rel=0.03)
    assert [point.parameters["gpus"] for point in points.values()][:: len(points) - 1] == [32, 16384]
