"""What claims are: sentences, each with a function that judges it on the results of a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from reproduce.experiment.bounds import RULES
from reproduce.experiment.results import Results
from reproduce.experiment.sweep import PAPER
from results.records import Number

OURS = "not in the paper"  # the place of a claim that is ours


@dataclass(frozen=True)
class Judgement:
    """What became of a claim: a verdict (of `results.records.VERDICTS`), why, and the numbers used.

    `within_margins` says that the verdict is already what the simulator's margins leave of it.
    """

    verdict: str
    explanation: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    within_margins: bool = False


Judge = Callable[[Results], Judgement]


@dataclass(frozen=True)
class Claim:
    """A sentence, of the paper verbatim or our own, and how it is judged.

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

    def __post_init__(self) -> None:
        if self.rule and self.rule not in RULES:
            raise ValueError(f"rule={self.rule!r} of claim {self.id!r}; needs one of {', '.join(RULES)}")


def on_papers_points(judge: Judge) -> Judge:
    """A judge of the paper's own points: where they contradict the sentence, the paper is inconsistent."""

    def judge_paper(results: Results) -> Judgement:
        judgement = judge(results.papers())
        verdict = "paper inconsistent" if judgement.verdict == "contradicted" else judgement.verdict
        return replace(judgement, verdict=verdict, explanation=f"the paper's points: {judgement.explanation}")

    return judge_paper


def holds_if(condition: bool, explanation: str, numbers: Mapping[str, Number] | None = None) -> Judgement:
    """'holds' or 'contradicted'."""
    return Judgement("holds" if condition else "contradicted", explanation, numbers or {})


def consistent_if(condition: bool, explanation: str, numbers: Mapping[str, Number] | None = None) -> Judgement:
    """'holds' or 'paper inconsistent', of a sentence about the paper's own numbers."""
    return Judgement("holds" if condition else "paper inconsistent", explanation, numbers or {})
