"""What claims are: sentences, each with a function that judges it; and the rules that their bounds come from.

A rule is what a word of a sentence allows, the same in every paper; a claim names its rule. Where a rule gives an
interval for a printed number, the bounds are this interval and nothing else; docs/reading.md shows the table, and a
test holds the page to it. A rule was written before any claim was judged by it, and is not changed for one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar

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
Allowed = tuple[float, float]


@dataclass(frozen=True)
class BoundRule:
    """What the words of a sentence allow.

    - `words`: which words of a sentence it is for; `meaning`: what it asks for, in one plain sentence
    - `interval`: the least and the most that are allowed, ends included, for a printed number and the unit of its last
      digit, or the tolerance of its table; None where no printed number decides
    - `open`: the ends themselves are not allowed
    """

    words: str
    meaning: str
    interval: Callable[[float, float], Allowed] | None = None
    open: bool = False


def _within(share: float) -> Callable[[float, float], Allowed]:
    """The interval of a relative tolerance, of numbers of either sign."""
    return lambda printed, step: (printed - share * abs(printed), printed + share * abs(printed))


def _reproduced(printed: float, tolerance: float) -> Allowed:
    return _within(tolerance or 0.10)(printed, 0.0)


def _rounded(printed: float, step: float) -> Allowed:
    return printed - step / 2, printed + step / 2


RULES = {
    "rounding": BoundRule(
        "a number without a word beside it",
        "The value, rounded to the digits printed, is the number printed: half a unit of the last digit either way; of "
        "a difference of two numbers printed, half a unit of each.",
        _rounded,
    ),
    "about": BoundRule("about, around, roughly, ~", "Within 10% of the number printed.", _within(0.10)),
    "up to": BoundRule(
        "up to, as much as, at most",
        "The largest value over the configurations that the sentence names is the number printed, to its digits: half "
        "a unit of the last digit either way; a factor of one digit counts as printed to a tenth (2x: 1.95 to 2.05).",
        _rounded,
    ),
    "range": BoundRule(
        "from a to b, a-b%",
        "Every value lies between the two numbers printed, each taken to its digits: half a unit of the last digit "
        "below the smaller, and above the larger.",
    ),
    "more than": BoundRule(
        "over, more than, at least, N+", "Not below the number printed.", lambda printed, step: (printed, inf)
    ),
    "less than": BoundRule(
        "below, under, only, less than", "Not above the number printed.", lambda printed, step: (-inf, printed)
    ),
    "most": BoundRule("most, majority, dominates", "More than half.", lambda printed, step: (0.5, inf), open=True),
    "nearly": BoundRule(
        "nearly, almost, close to",
        "At most 10% short of the number, and not beyond it; nearly half is 45 to 50%, and what is cut nearly in half "
        "leaves 50 to 55%.",
        lambda printed, step: (0.9 * printed, printed),
    ),
    "comparable": BoundRule("comparable, similar", "Within 5% of what it is compared with.", _within(0.05)),
    "much larger": BoundRule(
        "much larger, much faster, >>",
        "At least ten times as large: an order of magnitude.",
        lambda printed, step: (10.0 * printed, inf),
    ),
    "negligible": BoundRule(
        "negligible, no impact, without significant, does not change; denied: has an impact",
        "At most 2% of what it is a part or a change of; what has an impact is more than that.",
        lambda printed, step: (-0.02, 0.02),
    ),
    "direction": BoundRule(
        "larger, faster, falls, lower, best",
        "By its sign: larger or smaller by any amount, in every case that the sentence names.",
        lambda printed, step: (printed, inf),
        open=True,
    ),
    "exact": BoundRule(
        "a formula, an equality", "Equal, to the rounding of the arithmetic (1e-9 of the value).", _within(1e-9)
    ),
    "counted": BoundRule(
        "all, none, each, requires, fits, cannot",
        "Counted: so many as the sentence says, none more or less; what runs, fits or is sent is told from the "
        "configuration, not timed.",
    ),
    "reproduced": BoundRule(
        "several values of a table or a plot, predicted",
        "Each value within the tolerance by which its table calls a point reproduced: 10% of the one printed, or 5% "
        "where the table says so. One number by itself is held to `rounding`, wherever it is printed.",
        _reproduced,
    ),
    "ours": BoundRule(
        "no sentence of the paper",
        "A sentence of our own, or a reading that the paper's words do not force: the bound is ours, and the verdict "
        "says no more of the paper than this reading does.",
    ),
}


def allowed(rule: str, printed: float = 1.0, step: float = 0.0) -> Allowed:
    """The least and the most that a rule allows for a printed number whose last digit counts `step`.

    Of 'reproduced' `step` is the tolerance of the number's table. `printed` is 1 for a ratio to what something is
    compared with. Raises KeyError for an unknown rule, ValueError for one that gives no interval.
    """
    interval = RULES[rule].interval
    if interval is None:
        raise ValueError(f"rule={rule!r} gives no interval; needs a rule that does; try bounds of its own")
    return interval(printed, step)


def allows(rule: str, value: float, printed: float = 1.0, step: float = 0.0) -> bool:
    """Whether a value is what a rule allows for a printed number: see `allowed`."""
    low, high = allowed(rule, printed, step)
    return low < value < high if RULES[rule].open else low <= value <= high


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
