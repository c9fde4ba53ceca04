"""Judging the paper's claims on a run's results, and how far the run is from the paper's numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, fsum, log

from reproduce.experiment import fidelity
from reproduce.experiment.alternatives import readings, spread
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.bounded import Bounded
from reproduce.experiment.claims import NOTHING, Claim, Judgement, OnPapersPoints
from reproduce.experiment.quantities import COUNTED, names_of
from reproduce.experiment.results import Alternative, MissingResultError, Read, Results, counted, where
from reproduce.experiment.shaped import Shaped
from results.records import ClaimResult, PointResult

CLOCKED = ("emulated", "measured")  # what has samples
EQUAL = ("equal", "equal as rounded")
VERDICTS = ("holds", "contradicted", "paper inconsistent")  # the verdicts that another one inside a margin takes back
# A margin is looked at in so many steps where the sentence does not hold as simulated, since it may hold in between; in
# fewer where it does, and where there are many single points to move; then by bisection, to 1/1024 of a step.
STEPS, STEPS_WHERE_IT_HOLDS, MOST_LOOKS = 64, 4, 1024
BISECTIONS = 10


def judge(claim: Claim, results: Results) -> ClaimResult:
    """The claim with its verdict on these results."""
    if not fidelity.tests(results.fidelity, claim.fidelity):
        judged = Judgement(
            "not testable here",
            f"needs fidelity {claim.fidelity} or better; these results are {results.fidelity}",
        )
    elif results.scale not in claim.scales:
        needed = " or ".join(filter(None, (", ".join(claim.scales[:-1]), claim.scales[-1])))
        judged = Judgement("not testable here", f"speaks of scale {needed}; these results are at {results.scale}")
    else:
        judged = within_margins(claim, results)
    return ClaimResult(
        id=claim.id,
        sentence=claim.sentence,
        place=claim.place,
        fidelity=claim.fidelity,
        tolerance=claim.tolerance,
        verdict=judged.verdict,
        explanation=judged.explanation,
        numbers=judged.numbers,
        by=judged.by,
        rule=claim.rule or None,
        set_with=judged.set_with,
    )


def judgement(claim: Claim, results: Results) -> Judgement:
    """What the claim's judge says, whatever the fidelity, scale and margins are; 'inconclusive' without a result."""
    return _judged(claim, results) or Judgement("inconclusive", f"not judged: {_missing(claim, results)}")


def _judged(claim: Claim, results: Results, in_words: bool = True) -> Judgement | None:
    """What the claim's judge says; None without a result that it needs. Of a table's judge the verdict may do."""
    if results.partial:
        return None
    try:
        return claim.judge(results, in_words) if isinstance(claim.judge, Shaped) else claim.judge(results)
    except MissingResultError:
        return None


def _missing(claim: Claim, results: Results) -> str:
    if results.partial:
        return "the run was interrupted"
    try:
        claim.judge(results)
    except MissingResultError as error:
        return str(error.args[0])
    return ""


def within_margins(claim: Claim, results: Results) -> Judgement:
    """The judgement, by what, or 'inconclusive' if what it rests on is not sure enough for it.

    Inside the margins of simulated numbers, the spread of measured ones, or what the paper's values were read to,
    nothing may lead to another verdict. A number whose errors nobody knows decides nothing, for or against. A
    simulation cannot contradict what its numbers were set with. What is derived or counted is exact. What no result
    can decide is not testable here.
    """
    seen, read = results.watched()
    judged = judgement(claim, seen)
    if (claim.tolerance or "").startswith(NOTHING):
        why = str(claim.tolerance).removeprefix(NOTHING)
        text = f"{why}; {judged.explanation}" if judged.explanation else why
        return replace(judged, verdict="not testable here", explanation=text)
    by = _by_what(claim, results, read)
    published = {name for point in results.points for name in point.paper}
    from_points = results.set_with if read.metrics & published else ()
    given = (*claim.set_with, *from_points) if by == "simulated" else ()
    judged = replace(judged, by=judged.by or by, set_with=judged.set_with or tuple(dict.fromkeys(given)))
    if judged.within_margins or judged.verdict not in VERDICTS or by in ("derived", "counted"):
        return judged
    if unknown := sorted(read.metrics & (_clocked_once(results) if by in CLOCKED else results.unknown)):
        why = (
            "without samples nobody knows the spread of" if by in CLOCKED else "nobody knows the simulator's errors on"
        )
        text = f"{judged.verdict} as {by}, but {why} {', '.join(unknown)}"
        return replace(judged, verdict="inconclusive", explanation=f"{text}; {judged.explanation}")
    ways = _alternatives(claim, results, by, read, judged.verdict)
    nearest, what = _nearest_other_verdict(claim, results, judged, ways), "the verdict would be another"
    if nearest is None:
        nearest = _each_by_itself(claim, results, judged, by, read)
        what = "each that misses would hold by itself, the last"
    if nearest:
        other, share = nearest
        origin = "by the values as printed" if by == "paper" else f"as {by}"
        whose = {"simulated": "the simulator", "paper": "the values"}.get(by, "the samples")
        text = f"{judged.verdict} {origin}; {what} if {other.described(share)}, and {whose} may be off by"
        return replace(judged, verdict="inconclusive", explanation=f"{text} {other.sure_to}; {judged.explanation}")
    if judged.set_with:
        were = f"{', '.join(judged.set_with)} {'were' if len(judged.set_with) > 1 else 'was'} set with these numbers"
        if judged.verdict == "contradicted":
            text = f"contradicted as simulated, but {were}, so that this is the simulator's own error"
            return replace(judged, verdict="inconclusive", explanation=f"{text}; {judged.explanation}")
        return replace(judged, explanation=f"{judged.explanation}; {were}, so that this is no independent evidence")
    return judged


def _clocked_once(results: Results) -> set[str]:
    """The metrics that some point has without samples, and that are not counted."""
    once = {name for point in results.points for name, metric in point.metrics.items() if not metric.samples}
    return once - names_of(COUNTED)


def _by_what(claim: Claim, results: Results, read: Read) -> str:
    """By what the claim is judged, of `results.records.BY`: from its fidelity and what its judge has read."""
    if getattr(claim.judge, "of_paper", False):
        return "paper"
    if claim.fidelity == "derived" or results.fidelity == "derived":
        return "paper" if read.paper and not read.metrics else "derived"
    if read.metrics and read.metrics <= names_of(COUNTED):
        return "counted"
    return results.fidelity


def _alternatives(claim: Claim, results: Results, by: str, read: Read, verdict: str) -> list[Alternative]:
    """What else may be in place of what the claim is judged by, and has read."""
    if by == "paper":
        # What rounding may be why of is no contradiction; `Bounded` judges see to it themselves.
        printed = verdict == "paper inconsistent" and isinstance(claim.judge, OnPapersPoints)
        return list(readings(results, read, printed)) if getattr(claim.judge, "of_paper", False) else []
    return list(spread(results, read) if by in CLOCKED else results.moved(results, read))


def _nearest_other_verdict(
    claim: Claim, results: Results, judged: Judgement, ways: Sequence[Alternative]
) -> tuple[Alternative, float] | None:
    """The alternative with another verdict that is the nearest to the results, and the share of the way to it.

    A number that is missing is no other verdict, unless it was missing before.
    """
    verdict = judged.verdict

    def is_other(way: Alternative, share: float) -> bool:
        other = _judged(claim, way.moved_by(share), in_words=False)
        return other is not None and (judged.missing or not other.missing) and other.verdict != verdict

    def nearest(ways: Sequence[Alternative], steps: int, most: float = 1.0) -> tuple[Alternative, float] | None:
        """The nearest of these, if it is no farther than `most` of the way."""
        for step in range(1, ceil(most * steps) + 1):
            if flips := [way for way in ways if is_other(way, step / steps)]:
                break
        else:
            return None
        low, share = (step - 1) / steps, step / steps
        for _ in range(BISECTIONS):
            middle = (low + share) / 2
            nearer = [way for way in flips if is_other(way, middle)]
            low, share, flips = (low, middle, nearer) if nearer else (middle, share, flips)
        return flips[0], share

    steps = STEPS_WHERE_IT_HOLDS if verdict == "holds" else STEPS
    single = [way for way in ways if len(way.keys) == 1]
    found = nearest([way for way in ways if len(way.keys) != 1], steps)
    steps = max(1, min(steps, MOST_LOOKS // max(1, len(single))))
    alone = nearest(single, steps, found[1] if found else 1.0)
    return min(filter(None, (found, alone)), key=lambda way: way[1], default=None)


def _each_by_itself(
    claim: Claim, results: Results, judged: Judgement, by: str, read: Read
) -> tuple[Alternative, float] | None:
    """The farthest move with which a point that misses would hold, if each of them may hold by itself.

    The errors of points are their own: several that miss contradict a sentence no more than the worst of them does.
    """
    if judged.verdict != "contradicted" or not isinstance(claim.judge, Bounded):
        return None
    found = []
    for part in claim.judge.alone(results):
        nearest = _nearest_other_verdict(claim, part, judged, _alternatives(claim, part, by, read, judged.verdict))
        if nearest is None:
            return None
        found.append(nearest)
    return max(found, key=lambda way: way[1] * abs(log(way[0].factor)), default=None)


@dataclass(frozen=True)
class Accuracy:
    """Relative differences from the paper where both have numbers and the paper's is not zero, or both are."""

    count: int
    equal: int
    mean: float
    worst: float
    worst_label: str
    worst_signed: float

    def __str__(self) -> str:
        points = counted(self.count)
        if self.equal == self.count:
            return f"all {points} equal the paper's, as it rounded (largest difference {self.worst:.1%})"
        return (
            f"difference from the paper over {points}: mean {self.mean:.1%}, "
            f"worst {self.worst_signed:+.1%} ({self.worst_label}); {self.equal} equal as the paper rounded"
        )


def accuracy(artifact: Artifact, points: Sequence[PointResult]) -> Accuracy | None:
    """How far the main metric is from the paper's values; None if there are none to compare."""
    errors, equal = [], 0
    for point in points:
        verdict, name = agreement(artifact, point), artifact.main.name
        ours, paper = (found.value if (found := of.get(name)) else None for of in (point.metrics, point.paper))
        if point.status != "ok" or ours is None or paper is None or not (paper or verdict == "equal"):
            continue  # no two numbers, or none that has a ratio to the paper's zero
        signed = ours / paper - 1 if paper else 0.0
        equal += verdict in EQUAL
        errors.append((abs(signed), signed, where(point)))
    if not errors:
        return None
    worst, signed, label = max(errors)
    return Accuracy(len(errors), equal, fsum(e[0] for e in errors) / len(errors), worst, label, signed)


def agreement(artifact: Artifact, point: PointResult) -> str:
    """The verdict on a point: equal as the paper rounded, within the artifact's tolerance, or not."""
    if point.status != "ok":
        return point.status
    ours, paper = point.metrics.get(artifact.main.name), point.paper.get(artifact.main.name)
    if ours is None or ours.value is None:
        return "no result"
    if paper is None:
        return "paper gives none"
    difference = abs(ours.value - paper.value)
    if difference <= 1e-9 * abs(paper.value):
        return "equal"
    if paper.quantum and difference <= paper.quantum / 2 * (1 + 1e-9):
        return "equal as rounded"
    if difference <= artifact.tolerance * abs(paper.value):
        return f"within {artifact.tolerance:.0%}"
    return f"off by more than {artifact.tolerance:.0%}"
