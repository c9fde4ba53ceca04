"""What claims are: sentences, each with a function that judges it on the results of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from reproduce.experiment.bounds import RULES
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import PAPER
from results.records import Number

OURS = "not in the paper"  # the place of a claim that is ours
IN_OUR_WORDS = "In our words: "  # begins a sentence of the paper that is no quotation


@dataclass(frozen=True)
class Judgement:
    """What became of a claim: a verdict (of `results.records.VERDICTS`), why, and the numbers used.

    `missing` says that it is 'inconclusive' for want of a number; `within_margins` that the verdict is already what the
    simulator's margins leave of it. `by` is by what it was judged, of `results.records.BY`, and `set_with` names
    numbers of the simulator that were set with what it speaks of.
    """

    verdict: str
    explanation: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    within_margins: bool = False
    missing: bool = False
    by: str | None = None
    set_with: tuple[str, ...] = ()


Judge = Callable[[Results], Judgement]
TESTED_BY = {
    "derived": "by formulas, exact schedules or the numbers that the paper prints; nothing is simulated",
    "simulated": "by simulation: the verdict has to be the same everywhere inside its margin",
    "emulated": "by emulation, in real time",
    "measured": "by measurement: the verdict has to be the same for the middle 80% of the samples",
    "counted": "by counting what the configurations need or send; nothing is timed",
    "paper": "by the values that the paper itself prints or plots, as exactly as they can be read",
}


@dataclass(frozen=True)
class Claim:
    """A sentence, of the paper verbatim or in our words, or our own, and how it is judged.

    `place` is where the paper has it, `OURS` for a claim that is not the paper's. `fidelity` is the least that can
    test it (derived < simulated < emulated < measured): 'derived' for what follows from the paper's own numbers or
    formulas. `tolerance` says in words what `judge` allows, fixed beforehand. `judge` reads results and returns a
    `Judgement`; it may raise `MissingResultError`. `scales` are those whose results can test it: most sentences are
    about the paper's configurations, a direction shows at any scale that was made to show it.

    `rule` is where its bounds come from, of `bounds.RULES`. `set_with` names parameters of the cluster that were set
    with the very numbers of this sentence, where the cluster's file cannot tell: what was set with the points of the
    artifact that it is judged on is found by itself. A simulation cannot contradict a sentence then.
    """

    id: str
    sentence: str
    place: str
    fidelity: str
    tolerance: str | None
    judge: Judge
    scales: tuple[str, ...] = (PAPER,)
    rule: str = ""
    set_with: tuple[str, ...] = ()

    @property
    def tested_as(self) -> str:
        """What is tested, for who sees only the sentence and this: the clause, where its bound comes from, by what."""
        counted = self.rule == "counted" and self.fidelity == "simulated"
        by = "paper" if getattr(self.judge, "of_paper", False) else "counted" if counted else self.fidelity
        parts = [self.tolerance.rstrip(".") if self.tolerance else "nothing: no result can tell"]
        if self.rule:
            parts.append(f"the bound is {self.rule!r}: {RULES[self.rule].meaning.rstrip('.')}")
        parts.append(f"judged {TESTED_BY[by]}" if self.tolerance else f"it needs fidelity {self.fidelity} or better")
        if self.set_with:
            parts.append(f"set with these words: {', '.join(self.set_with)}, so that it cannot be contradicted")
        return ". ".join(part[0].upper() + part[1:] if i else part for i, part in enumerate(parts)) + "."

    def __post_init__(self) -> None:
        if self.rule and self.rule not in RULES:
            raise ValueError(f"rule={self.rule!r} of claim {self.id!r}; needs one of {', '.join(RULES)}")


@dataclass(frozen=True)
class OnPapersPoints:
    """A judge of the paper's own points: where they contradict the sentence, the paper is inconsistent."""

    judge: Judge
    of_paper: ClassVar[bool] = True

    def __call__(self, results: Results) -> Judgement:
        """The verdict on the paper's values in place of the results."""
        judgement = self.judge(results.papers())
        verdict = "paper inconsistent" if judgement.verdict == "contradicted" else judgement.verdict
        return replace(judgement, verdict=verdict, explanation=f"the paper's points: {judgement.explanation}")


def holds_if(condition: bool, explanation: str, numbers: Mapping[str, Number] | None = None) -> Judgement:
    """'holds' or 'contradicted'."""
    return Judgement("holds" if condition else "contradicted", explanation, numbers or {})


def consistent_if(condition: bool, explanation: str, numbers: Mapping[str, Number] | None = None) -> Judgement:
    """'holds' or 'paper inconsistent', of a sentence about the paper's own numbers."""
    return Judgement("holds" if condition else "paper inconsistent", explanation, numbers or {})
