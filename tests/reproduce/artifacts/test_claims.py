"""The claims of all artifacts: what they say where and how; and those of Figures 11 and 13 to 18 without results."""

import pytest

from reproduce.experiment import catalog
from reproduce.experiment.judging import judge
from reproduce.experiment.papers import FIRST

PLACES = ("Abstract", "Section", "Figure", "Table", "Appendix", "not in the paper")
NOT_TESTABLE = {
    "exponential_flops",
    "deepspeed_36_percent",
    "load_bandwidth",
    "save_bandwidth",
    "checkpoints_and_throughput",
}
SWEEPS = (
    *("fig_microbatch", "fig_pipeline_vs_data", "fig_pipeline_weak_scaling", "fig_recomputation"),
    *("fig_scatter_gather", "fig_tensor_vs_data", "fig_tensor_vs_pipeline"),
)


@pytest.mark.parametrize("id", catalog.ids())
def test_they_say_where_and_how(id):
    claims = catalog.load(id).claims
    assert len({claim.id for claim in claims}) == len(claims)
    for claim in claims:
        assert len(claim.sentence.splitlines()) == 1
        assert claim.place.startswith(PLACES)
        assert (claim.tolerance is None) == (claim.id in NOT_TESTABLE), claim.id


@pytest.mark.parametrize("id", SWEEPS)
def test_without_results_nothing_simulated_is_judged(id, results_for):
    artifact = catalog.load(id)
    none = results_for(artifact, {}, oom=lambda point: True)
    for claim in artifact.claims:
        if claim.fidelity == "simulated":
            # what is said to fit, and does not, is contradicted by that alone
            expected = "contradicted" if claim.id == "fits_model_parallel_2" else "inconclusive"
            assert judge(claim, none).verdict == expected, claim.id


@pytest.mark.parametrize("id", catalog.ids())
def test_every_claim_that_can_be_tested_names_the_rule_of_its_bounds(id):
    artifact = catalog.load(id)
    for claim in artifact.claims:
        assert claim.rule or claim.tolerance is None, claim.id
        assert (claim.rule == "fixed beforehand") <= (artifact.paper == FIRST), claim.id
        assert claim.tested_as.endswith(".")
