"""What is tested of a sentence, for who sees only the two: the clause, its rule, by what, and which margins apply."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from pathlib import Path

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.bounds import RULES
from reproduce.experiment.claims import NOTHING, Claim
from reproduce.experiment.made_of import COUNTED, SPEED, made_of
from reproduce.experiment.margins import CLUSTER, for_judging
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.results import MissingResultError, Read, Results
from reproduce.experiment.set_with import numbers_set_with
from results import ROOT
from results.records import PointResult, read_record

SPELLED = {"samples_per_gpu_s": "sequences per GPU and second", "gemm_throughput": "the rate inside GEMMs"}
REFERENCE = ROOT / "results" / "reference"
TESTED_BY = {
    "derived": "judged by formulas, printed numbers and schedules executed exactly; nothing is simulated",
    "simulated": "judged by simulation; too near to call unless the verdict is the same for {margins}",
    "emulated": "judged by emulation, in real time: the verdict has to be the same for the middle 80% of the samples",
    "measured": "judged by measurement: the verdict has to be the same for the middle 80% of the samples",
    "counted": "judged by counting, in the configurations, their schedules or the paper; nothing is timed",
    "paper": "judged by the paper's own numbers alone: a plotted one may be off by half the step that it was read to, "
    "a printed one by its rounding; too near to call unless the verdict is the same for either",
}


def what_is_tested(claim: Claim, artifact: Artifact) -> str:
    """What is tested of a claim's sentence, or why nothing is."""
    if not claim.tolerance or claim.tolerance.startswith(NOTHING):
        return f"{claim.tolerance or 'nothing: no result of any fidelity here can tell'}."
    by = "paper" if getattr(claim.judge, "of_paper", False) else claim.tested_by
    by = by or ("counted" if claim.rule == "counted" else claim.fidelity)
    parts = [claim.tolerance.rstrip(".")]
    if claim.rule:
        first = RULES[claim.rule].meaning.rstrip(".").split("; ")[0]
        parts.append(f"rule {claim.rule!r}: {first[0].lower()}{first[1:]}")
    parts.append(TESTED_BY[by].format(margins=margins_in_words(claim, artifact) if by == "simulated" else ""))
    what = "what this says" if claim.set_with else "values published here"
    if given := claim.set_with or (by == "simulated" and _set_with(claim, artifact)):
        names, were = ", ".join(given), "were" if len(given) > 1 else "was"
        parts.append(
            f"the simulator's {names} {were} set with {what}, so that a hit is no evidence and a miss does not "
            "contradict it"
        )
    return ". ".join(part[0].upper() + part[1:] if i else part for i, part in enumerate(parts)) + "."


def margins_in_words(claim: Claim, artifact: Artifact, cluster: str | None = None) -> str:
    """What a simulated verdict has to stand: the margins of what the claim's judge reads, on the clusters it reads.

    A judge that judges another artifact's claim on another `cluster` says so in `elsewhere`.
    """
    if (elsewhere := getattr(claim.judge, "elsewhere", None)) is not None:
        return margins_in_words(*elsewhere)
    if (watched := _watched(claim, artifact)) is None:
        return "every number inside its margin (docs/margins.md)"
    seen, read = watched
    points = [point for point in seen.points if point.key in read.points] or seen.points
    said = dict.fromkeys(
        text for point in points for text in _of_point(point, read.metrics, cluster or artifact.cluster)
    )
    return "; ".join(said)


def _set_with(claim: Claim, artifact: Artifact) -> tuple[str, ...]:
    """The numbers of the cluster that were set with the published values that the claim's judge reads."""
    watched = _watched(claim, artifact)
    if watched is None or not watched[1].metrics & {name for point in watched[0].points for name in point.paper}:
        return ()
    return numbers_set_with(artifact.cluster, artifact.id)


def _watched(claim: Claim, artifact: Artifact) -> tuple[Results, Read] | None:
    """The committed results and what the claim's judge reads of them; None where none are committed."""
    path = REFERENCE / artifact.id / "simulated" / "record.json"
    if not path.is_file():
        return None
    seen, read = _committed(path).watched()
    with suppress(MissingResultError):
        claim.judge(seen)
    return seen, read


@cache
def _committed(path: Path) -> Results:
    return Results.of_record(read_record(path))


def _of_point(point: PointResult, names: AbstractSet[str], cluster: str) -> Iterator[str]:
    """The margins of what is read of a point."""
    cluster = str(point.parameters.get(CLUSTER, cluster))
    margins, where = for_judging(cluster), f" on {cluster}"
    zero3 = " with ZeRO-3" if point.parameters.get("data_parallel") == "zero3" else ""
    for name in sorted(names & point.metrics.keys(), key=lambda name: (name not in METRICS, name)):
        made = made_of(name)
        if made is None or made.kind in (COUNTED, "memory"):
            continue
        value, ratio = (margins.factor(name, of, point.parameters) for of in ("value", "ratio"))
        what = SPELLED.get(name, name.replace("_", " "))
        if made.kind == "ratio":
            what, value = f"{what}, plus 1," if made.plus else what, ratio
        elif made.kind in SPEED and name in METRICS:
            what = "throughputs and times of an iteration"
        if abs(value - ratio) < 1e-3:
            yield f"{what}{zero3}{where}, all or one against the rest, {ends(value)}"
        else:
            yield f"{what}{zero3}{where} {ends(value)}, one against the rest {ends(ratio)}"
    yield f"memory{where}, which decides what fits, {ends(margins.memory_factor)}"


def ends(factor: float) -> str:
    """How far off a number may be."""
    if factor > 1.5:
        return f"off by a factor of {factor:.1f} either way"
    return f"{1 - 1 / factor:.1%} lower to {factor - 1:.1%} higher"
