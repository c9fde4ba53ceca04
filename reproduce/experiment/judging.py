"""Judging the paper's claims on a run's results, and how far the run is from the paper's numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum

from reproduce.experiment import fidelity
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import Claim, Judgement
from reproduce.experiment.predictions import counted, where
from reproduce.experiment.quantities import Quantity
from reproduce.experiment.results import MissingResultError, Results
from results.records import ClaimResult, PointResult

EQUAL = ("equal", "equal as rounded")
STEPS = 10  # of bisection: how near the margin at which a verdict changes is found, in 1/1024 of the whole margin


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
    )


def judgement(claim: Claim, results: Results) -> Judgement:
    """What the claim's judge says, whatever the fidelity, scale and margins are; 'inconclusive' without a result."""
    try:
        return claim.judge(results)
    except MissingResultError as error:
        return Judgement("inconclusive", f"not judged: {error.args[0]}")


def within_margins(claim: Claim, results: Results) -> Judgement:
    """The judgement, or 'inconclusive' if another one lies inside the simulator's margins, with the least change to it.

    What follows from the paper's own numbers or formulas (claims of fidelity 'derived') has no margin.
    """
    simulated = judgement(claim, results)
    has_none = claim.fidelity == "derived" or simulated.within_margins
    if has_none or simulated.verdict not in ("holds", "contradicted"):
        return simulated
    flips = [other for other in results.alternatives if judgement(claim, other.results).verdict != simulated.verdict]
    if not flips:
        return simulated
    low, share = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + share) / 2
        nearer = [other for other in flips if judgement(claim, other.moved_by(middle)).verdict != simulated.verdict]
        low, share, flips = (low, middle, nearer) if nearer else (middle, share, flips)
    nearest = flips[0]
    return replace(
        simulated,
        verdict="inconclusive",
        explanation=f"{simulated.verdict} as simulated, but not if {nearest.described(share)}, and the simulator is "
        f"sure of that only to {abs(nearest.factor - 1):.1%}; {simulated.explanation}",
    )


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
        ratio, verdict = ratio_to_paper(artifact.main, point), agreement(artifact, point)
        if ratio is None and verdict != "equal":  # no two numbers, or none that has a ratio to the paper's zero
            continue
        signed = 0.0 if ratio is None else ratio - 1
        equal += verdict in EQUAL
        errors.append((abs(signed), signed, where(point)))
    if not errors:
        return None
    worst, signed, label = max(errors)
    return Accuracy(len(errors), equal, fsum(e[0] for e in errors) / len(errors), worst, label, signed)


def ratio_to_paper(quantity: Quantity, point: PointResult) -> float | None:
    """Ours over the paper's, where both are known and the paper's is not zero."""
    ours, paper = point.metrics.get(quantity.name), point.paper.get(quantity.name)
    if point.status != "ok" or ours is None or ours.value is None or paper is None or not paper.value:
        return None
    return ours.value / paper.value


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
