"""What claims are: sentences, each with a function that judges it on the results of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from reproduce.experiment.bounds import RULES
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import PAPER, SCALES
from results.records import Number

OURS = "not in the paper"  # the place of a claim that is ours
NOTHING = "nothing: "  # begins the tolerance of a claim that nothing here can test, with the reason
NARROW = (
    "the simulator's margin is wider than this bound, so that a simulation can contradict it or stay open, but not "
    "confirm it"
)
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


@dataclass(frozen=True)
class Claim:
    """A sentence, of the paper verbatim or in our words, or our own, and how it is judged.

    `place` is where the paper has it, `OURS` for a claim that is not the paper's. `fidelity` is the least that can
    test it (derived < simulated < emulated < measured): 'derived' for what follows from the paper's own numbers or
    formulas. `tolerance` says in words what `judge` allows, or, after `NOTHING`, why nothing here can test the
    sentence. `judge` reads results and returns a `Judgement`; it may raise `MissingResultError`. `scales` are those
    whose results can test it: most sentences are about the paper's configurations, a direction shows at any scale that
    was made to show it.

    `rule` is where its bounds come from, of `bounds.RULES`. `set_with` names parameters of the cluster that were set
    with the very numbers of this sentence, where the cluster's file cannot tell: what was set with the points of the
    artifact that it is judged on is found by itself. A simulation cannot contradict a sentence then. `tested_by` says
    by what it is judged, of `tested_as.TESTED_BY`, where its fidelity and its rule do not.
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
    tested_by: str = ""

    def __post_init__(self) -> None:
        if self.rule and self.rule not in RULES:
            raise ValueError(f"rule={self.rule!r} of claim {self.id!r}; needs one of {', '.join(RULES)}")
        if unknown := set(self.scales) - set(SCALES):
            raise ValueError(f"scale {min(unknown)!r} of claim {self.id!r}; needs one of {', '.join(SCALES)}")
        if self.fidelity not in FIDELITIES:
            raise ValueError(f"fidelity={self.fidelity!r} of claim {self.id!r}; needs one of {', '.join(FIDELITIES)}")


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


def quoted(sentence: str, place: str, marks: str = '""') -> str:
    """A claim's sentence, in quotation marks if it is the paper's, word for word."""
    if place == OURS or sentence.startswith(IN_OUR_WORDS):
        return sentence
    return f"{marks[0]}{sentence}{marks[1]}"
