"""Whether the paper holds: every claim counted once, the same words for everything that speaks of it."""

from dataclasses import replace

import pytest

from reproduce.experiment import catalog
from reproduce.experiment.claims import OURS
from reproduce.output.verdicts import VERDICT_LOOKS, answer, claims_of, told
from results.records import VERDICTS, ClaimResult

ALL_12 = len(catalog.load("fig_interleaved").claims)  # of Figure 12


def result(id, verdict):
    return ClaimResult(id, "The best size is $b$.", "Section 1", "simulated", None, verdict, "best: b=2", {})


def test_every_claim_of_the_catalogue_counts_once_whether_judged_or_not(figure_12):
    everything = sum(claim.place != OURS for id in catalog.ids("sc21") for claim in catalog.load(id).claims)
    counted = answer(
        claims_of([figure_12.record, replace(figure_12.record, fidelity="emulated", scale="laptop")]), paper="sc21"
    )
    verdicts = [claim.verdict for claim in figure_12.record.claims]
    assert counted.counts == {verdict: verdicts.count(verdict) for verdict in VERDICTS}
    assert sum(counted.counts.values()) + counted.unjudged == everything
    assert counted.headline.startswith(
        f"Does the paper hold? {verdicts.count('holds')} of its {everything} sentences hold; "
    )
    assert counted.headline.endswith(
        f" 1 the paper's own numbers disagree with; {everything - len(verdicts)} not judged yet."
    )


def test_what_is_partial_or_no_claim_of_the_artifact_does_not_count(figure_12):
    assert claims_of([replace(figure_12.record, state="partial")]) == {}
    assert answer({"fig_interleaved": [result("unheard_of", "holds")]}, ["fig_interleaved"]).unjudged == ALL_12


def test_a_contradiction_says_by_how_much_and_if_the_papers_points_agree_with_it():
    sentence = "up_to_33_percent_lower"
    claims = [result(sentence, "contradicted"), result(f"{sentence}_in_the_paper", "paper inconsistent")]
    counted = answer({"fig_recomputation": claims}, ["fig_recomputation"])
    assert counted.headline.startswith("0 of ")
    assert "1 does not (1 of them also by the paper's own points)" in counted.headline
    text = "\n".join(counted.lines())
    assert "  fig_recomputation.up_to_33_percent_lower (Figure 17)\n" in text
    assert '      "The best size is b."\n      best: b=2; the paper\'s own points contradict it, too\n' in text
    assert max(map(len, counted.lines())) <= 100


@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_has_its_words(verdict):
    counted = answer({"fig_interleaved": [result("gap_closes", verdict)]}, ["fig_interleaved"])
    assert VERDICT_LOOKS[verdict].singular.format(n=1) in counted.headline.replace(
        f"1 of {ALL_12} sentences holds", "1 holds"
    )


def test_the_answer_in_words():
    claims = [result(id, verdict) for id, verdict in zip(KEPT, VERDICTS, strict=False)]
    counted = answer({"fig_interleaved": claims}, ["fig_interleaved"])
    assert counted.headline == (
        f"1 of {ALL_12} sentences holds; 1 does not; for 1 the simulator is not sure enough; "
        f"1 the paper's own numbers disagree with; 1 cannot be tested here; {ALL_12 - 5} not judged yet."
    )


KEPT = ("improves_throughput", "comparable_memory", "interleaved_higher", "gap_closes", "reason_a_bubble")


def test_a_verdict_is_told_with_by_what():
    assert told(replace(result("a", "inconclusive"), by="simulated")) == "too near to call (simulated)"
    assert told(replace(result("a", "contradicted"), by="simulated")) == "contradicted (simulated, beyond its margin)"
    assert told(replace(result("a", "holds"), by="counted")) == "holds (counted)"
    assert told(replace(result("a", "paper inconsistent"), by="paper")).endswith("disagree (by the paper's own points)")
    assert told(result("a", "holds")) == "holds"  # of a record of an earlier version


def test_sentences_are_counted_by_what_they_were_judged():
    """Decided and open apart; what nothing judged is not in any column."""
    by = dict(zip(KEPT, ("derived", "simulated", "simulated", None, "paper"), strict=True))
    claims = [replace(result(id, verdict), by=by[id]) for id, verdict in zip(KEPT, VERDICTS, strict=False)]
    counted = answer({"fig_interleaved": claims}, ["fig_interleaved"])
    assert {name: pair for name, pair in counted.by_what.items() if any(pair)} == {
        "derived": (1, 0),
        "simulated": (1, 1),
        "paper": (1, 0),
    }
    assert counted.not_judged == ALL_12 - 4


def test_a_paper_of_which_nothing_was_run_is_not_said_to_hold_in_nothing(figure_12):
    told = answer(claims_of([figure_12.record])).by_paper
    assert not [line for line in told if ": 0 of " in line]
    assert answer({}, paper="llama3").verdicts == "none of its 17 sentences is judged yet"
