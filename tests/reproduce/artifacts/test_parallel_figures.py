"""Figures 11 and 13 to 18: what claims say where and how, and without results."""

import pytest

from reproduce.artifacts import (
    fig_microbatch,
    fig_pipeline_vs_data,
    fig_pipeline_weak_scaling,
    fig_recomputation,
    fig_scatter_gather,
    fig_tensor_vs_data,
    fig_tensor_vs_pipeline,
)
from reproduce.experiment.claims import judge

ARTIFACTS = [
    module.ARTIFACT
    for module in (
        fig_microbatch,
        fig_pipeline_vs_data,
        fig_pipeline_weak_scaling,
        fig_recomputation,
        fig_scatter_gather,
        fig_tensor_vs_data,
        fig_tensor_vs_pipeline,
    )
]


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda artifact: artifact.id)
def test_without_results_nothing_simulated_is_judged(artifact, results_for):
    none = results_for(artifact, {}, oom=lambda point: True)
    for claim in artifact.claims:
        if claim.fidelity == "simulated":
            # what is said to fit, and does not, is contradicted by that alone
            expected = "contradicted" if claim.id == "fits_model_parallel_2" else "inconclusive"
            assert judge(claim, none).verdict == expected, claim.id


@pytest.mark.parametrize("artifact", ARTIFACTS, ids=lambda artifact: artifact.id)
def test_claims_say_where_and_how(artifact):
    assert len({claim.id for claim in artifact.claims}) == len(artifact.claims)
    for claim in artifact.claims:
        assert claim.sentence
        assert claim.tolerance
        assert claim.place.startswith(("Section", "Figure"))


def test_the_default_schedule_is_not_drawn(tmp_path):
    from reproduce.output import theme
    from reproduce.running import runner

    run = runner.run(runner.plan(fig_scatter_gather.ARTIFACT, tmp_path), ["reproduce"])
    with theme.style():
        figure = fig_scatter_gather.ARTIFACT.draw(fig_scatter_gather.ARTIFACT, run.record)
    names = {line.get_label() for line in figure.axes[0].lines}
    assert names == {name + end for name in (fig_scatter_gather.ON, fig_scatter_gather.OFF) for end in ("", " (paper)")}
    assert {point.series for point in run.record.points} > {fig_scatter_gather.DEFAULT_OFF}
    assert any("not in the paper's figure" in note for note in run.record.notes)
    sent = {p.key: p.metrics["pipeline_traffic"].value for p in run.record.points}
    assert sent["unoptimized_B60"] == pytest.approx(8 * sent["scatter_gather_B60"])
    assert "throughput_per_gpu" in run.record.points[0].metrics
