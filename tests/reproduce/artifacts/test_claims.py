"""The claims of all artifacts: what they say where and how; and those of Figures 11 and 13 to 18 without results."""

import re

import pytest

from reproduce.experiment import catalog, papers
from reproduce.experiment.artifact import AS_DATA, NO_CLAIMS
from reproduce.experiment.bounded import PUBLISHED, Bounded
from reproduce.experiment.claims import IN_OUR_WORDS, NARROW, NOTHING, OURS, quoted
from reproduce.experiment.judging import judge
from reproduce.experiment.margins import for_judging
from reproduce.experiment.papers import ANNEX, FOLDER, read_toml
from reproduce.experiment.published import numbers_set_with
from reproduce.experiment.quantities import made_of
from reproduce.experiment.tested_as import what_is_tested

PLACES = ("Abstract", "Section", "Figure", "Table", "Appendix", "not in the paper")
NOT_TESTABLE = {
    *("fewest_gpus_6_and_24_percent", "doubled_gpus_70_percent", "data_bisection"),
    *("increases_throughput_15_percent", "increases_throughput_15_percent_in_the_paper"),
    *("throughput_of_1f1b_i", "throughput_of_zb_2p", "zb_2p_fastest", "zb_1p_like_1f1b_i", "few_microbatches"),
    *("memory_of_1f1b", "memory_of_1f1b_i", "memory_of_zb_1p", "memory_of_zb_2p"),
    *("zb_1p_memory_like_1f1b", "zb_2p_memory_up_to_twice", "throughput_increases_by_30_percent"),
    *("aggregate_502_petaflops", "share_of_peak_52_percent", "throughput_163_teraflops", "shares_of_peak_52_and_44"),
    *("up_to_33_percent_lower", "up_to_two_times_higher", "up_to_two_times_lower", "every_1_or_2_simulated"),
    *("fig_scatter_gather.up_to_11_percent", "exponential_flops", "deepspeed_36_percent", "load_bandwidth"),
    *("save_bandwidth", "checkpoints_and_throughput", "trillion_in_84_days"),
    *("post_validation_8_percent", "zb_v_below_1f1b_i", "zb_v_like_zb_h2", "context_costs_little"),
}
SWEEPS = (
    *("fig_microbatch", "fig_pipeline_vs_data", "fig_pipeline_weak_scaling", "fig_recomputation"),
    *("fig_scatter_gather", "fig_tensor_vs_data", "fig_tensor_vs_pipeline"),
)
MODULES = [path for folder in (FOLDER, ANNEX) for path in folder.glob("*/*.py")]
WITH_TABLES = [path for path in MODULES if path.with_suffix(".toml").exists()]
PARAPHRASED = [id for paper in papers.papers() if paper.paraphrased for id in catalog.ids(paper.name)]


@pytest.mark.parametrize("id", catalog.ids())
def test_they_say_where_and_how(id):
    claims = catalog.load(id).claims
    for claim in claims:
        assert len(claim.sentence.splitlines()) == 1
        assert claim.place.startswith(PLACES)
        listed = not NOT_TESTABLE.isdisjoint((claim.id, f"{id}.{claim.id}"))
        assert claim.tolerance.startswith(NOTHING) == listed, claim.id


@pytest.mark.parametrize("id", SWEEPS)
def test_without_results_nothing_simulated_is_judged(id, results_for):
    artifact = catalog.load(id)
    none = results_for(artifact, {}, oom=lambda point: True)
    for claim in artifact.claims:
        if claim.fidelity == "simulated":
            # what is said to fit, and does not, is contradicted by that alone
            expected = "contradicted" if claim.id == "fits_model_parallel_2" else "inconclusive"
            if claim.tolerance.startswith(NOTHING):
                expected = "not testable here"
            assert judge(claim, none).verdict == expected, claim.id


@pytest.mark.parametrize("id", catalog.ids())
def test_every_claim_that_can_be_tested_names_the_rule_of_its_bounds(id):
    artifact = catalog.load(id)
    for claim in artifact.claims:
        assert claim.rule or claim.tolerance.startswith(NOTHING), claim.id
        assert what_is_tested(claim, artifact).endswith(".")


@pytest.mark.parametrize(
    ("id", "claim", "said"),
    [
        (
            "fig_tensor_vs_pipeline",
            "best_at_node_size",
            "throughputs and times -6.7 to +7.2% (one against the rest -6.6",
        ),
        (
            "fig_recomputation",
            "needed_for_larger_batches",
            "simulated, with the margins of selene: memory -15.7 to +18.7%.",
        ),
        ("fig_schedule_zoo", "less_memory_pays_off", "+7.1%), memory -15.7 to +18.7%."),
        ("fig_interleaved", "gap_closes_in_the_paper", "each plotted value off by at most 500 GFLOP/s."),
        ("table_weak_scaling", "super_linear_in_the_paper", "by the paper's own numbers."),
        ("paper_claims", "takeaway_1", "gemm_plateau was set with what this says: a hit is no evidence"),
        (
            "table_training_time",
            "about_3_months",
            "memory_efficiency were set with what this says: a hit is no evidence",
        ),
    ],
)
def test_margins_are_those_of_what_a_verdict_rests_on(id, claim, said):
    """A memory's where it decides, of throughputs one against the rest, too; of what was plotted half a step."""
    artifact = catalog.load(id)
    tested = what_is_tested(next(each for each in artifact.claims if each.id == claim), artifact)
    assert said in tested
    assert ("memory -16.0" in said) == ("memory -16.0" in tested)


def test_numbers_set_with_table_1_are_those_that_the_clusters_file_names():
    """So does the claim on the training time of its last run."""
    (claim,) = (claim for claim in catalog.load("table_training_time").claims if claim.id == "about_3_months")
    named = ("gemm_plateau", "gemm_wave_efficiency", "memory_efficiency")
    assert numbers_set_with("selene", "table_weak_scaling") == claim.set_with == named


@pytest.mark.parametrize("id", PARAPHRASED)
def test_sentences_in_our_words_are_marked_and_not_quoted(id):
    for claim in catalog.load(id).claims:
        assert claim.sentence.startswith(IN_OUR_WORDS) == (claim.place != OURS), claim.id
        assert quoted(claim.sentence, claim.place) == claim.sentence
        assert claim.rule == "ours" or claim.place != OURS, claim.id


@pytest.mark.parametrize("id", PARAPHRASED)
def test_what_is_tested_is_said_in_words_and_not_by_names_of_parameters(id):
    artifact = catalog.load(id)
    for claim in artifact.claims:
        if isinstance(claim.judge, Bounded):
            assert claim.judge.tested, claim.id
            named = [f"{name}={value}" for name, value in claim.judge.of.items()]
            assert not any(text in what_is_tested(claim, artifact) for text in (*named, "in the same series")), claim.id


@pytest.mark.parametrize("id", catalog.ids())
def test_a_claim_can_be_confirmed_or_contradicted_or_is_not_testable(id):
    artifact = catalog.load(id)
    for claim in artifact.claims:
        wide = any(words in claim.tolerance for words in (NARROW, "cannot confirm", "but not confirm"))
        set_with = "a miss does not contradict" in what_is_tested(claim, artifact)
        undecided = wide and (set_with or getattr(claim.judge, "miss", ""))
        assert not undecided or claim.tolerance.startswith(NOTHING), claim.id


@pytest.mark.parametrize("id", PARAPHRASED)
def test_a_bound_that_is_narrower_than_the_margin_says_so(id):
    artifact = catalog.load(id)
    margins = for_judging(artifact.cluster)
    for claim in artifact.claims:
        bounded = claim.judge
        if not isinstance(bounded, Bounded) or claim.fidelity != "simulated" or len(bounded.bounds) < 2:
            assert not getattr(bounded, "narrow", False), claim.id
            continue
        made = made_of(bounded.metrics[0])
        alone = bounded.over in (None, PUBLISHED) and not made.plus
        if made.kind == "memory":  # all memories are off together
            factor = margins.memory_factor if alone else 1.0
        else:
            factor = margins.factor(bounded.metrics[0], "value" if alone and bounded.less is None else "ratio", {})
        low, high = (1 + end if made.plus else end for end in sorted(bounded.bounds.values()))
        assert bounded.narrow == (bounded.less is not None or high / low < factor**2), claim.id


@pytest.mark.parametrize("module", WITH_TABLES, ids=lambda path: path.stem)
def test_every_table_beside_a_module_is_of_one_of_its_judges(module):
    judges = re.findall(r"^@ARTIFACT\.judge\ndef (\w+)", module.read_text(), re.MULTILINE)
    tables = read_toml(module.with_suffix(".toml"))
    judged = [name for name in tables if name not in NO_CLAIMS and not AS_DATA & tables[name].keys()]
    assert judged == judges


def test_a_judge_without_a_table_is_refused(small):
    def unheard(results):
        """A sentence."""

    unheard.__module__ = "reproduce.papers.sc21.fig_bubble"
    with pytest.raises(
        papers.PaperError, match=r"line 1: claim 'unheard' has no table in fig_bubble.toml; needs one; try \[unheard\]"
    ):
        small.judge(unheard)
