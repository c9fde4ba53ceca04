"""What is tested of a sentence, for who sees only the two: the clause, its rule, by what, and which margins apply."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from pathlib import Path

from reproduce.experiment.alternatives import PLOT
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import NOTHING, RULES, Claim
from reproduce.experiment.margins import CLUSTER, for_judging
from reproduce.experiment.metrics import METRICS
from reproduce.experiment.published import numbers_set_with
from reproduce.experiment.quantities import COUNTED, SPEED, UNKNOWN, made_of, names_of
from reproduce.experiment.results import MissingResultError, Read, Results
from results import ROOT
from results.records import PointResult, read_record
from results.records.units import with_unit

SPELLED = {"samples_per_gpu_s": "sequences per GPU and second", "gemm_throughput": "the rate inside GEMMs"}
REFERENCE = ROOT / "results" / "reference"
PAPERS = "by the paper's own numbers"
TESTED_BY = {
    "derived": "from formulas, printed numbers and schedules executed exactly; nothing is simulated",
    "simulated": "too near to call unless the verdict is the same wherever each number lies inside its margin, all off "
    "alike or one against the rest; that of a memory decides what fits",
    "emulated": "in real time; the verdict has to be the same for the middle 80% of the samples",
    "measured": "the verdict has to be the same for the middle 80% of the samples",
    "counted": "in the configurations, their schedules or the paper; nothing is timed",
    PAPERS: "nothing of ours; the verdict has to be the same if a plotted one is off by half the step that it was read "
    "to, and those of a table contradict only where their rounding cannot be why",
}


def what_is_tested(claim: Claim, artifact: Artifact) -> str:
    """What is tested of a claim's sentence, or why nothing is: the clause, its rule, by what, the margins."""
    if claim.tolerance is None or _nothing(claim):
        return f"{claim.tolerance or 'nothing: no result of any fidelity here can tell'}."
    by = _by_what(claim)
    tolerance = f" ({artifact.tolerance:.0%} here)" if claim.rule == "reproduced" else ""
    margins = f", with the margins of {margins_in_words(claim, artifact)}" if by == "simulated" else ""
    margins = _read_to(claim, artifact) if by == PAPERS else margins
    ruled = f"rule {claim.rule!r}{tolerance}" if claim.rule else ""
    named = (ruled, "" if by == claim.rule else f"{by}{margins}")
    parts = [claim.tolerance.rstrip("."), ", ".join(filter(None, named))]
    what = "what this says" if claim.set_with else "values published here"
    if given := claim.set_with or (by == "simulated" and _set_with(claim, artifact)):
        names, were = ", ".join(given), "were" if len(given) > 1 else "was"
        parts.append(
            f"the simulator's {names} {were} set with {what}: a hit is no evidence and a miss does not contradict it"
        )
    return ". ".join(part[0].upper() + part[1:] if i else part for i, part in enumerate(parts)) + "."


def words_used(claims: Sequence[Claim]) -> dict[str, str]:
    """What the rules and the kinds of evidence mean that are named where it is said what is tested of these claims."""
    tested = [claim for claim in claims if not _nothing(claim)]
    ruled = {f"{rule!r}": RULES[rule].meaning for rule in RULES if any(claim.rule == rule for claim in tested)}
    return ruled | {by: meaning for by, meaning in TESTED_BY.items() if by in map(_by_what, tested)}


def _nothing(claim: Claim) -> bool:
    """Whether nothing is tested of a claim."""
    return not claim.tolerance or claim.tolerance.startswith(NOTHING)


def _by_what(claim: Claim) -> str:
    """By what a claim is judged, of `TESTED_BY`."""
    if getattr(claim.judge, "of_paper", False) or claim.tested_by == "paper":
        return PAPERS
    return claim.tested_by or ("counted" if claim.rule == "counted" else claim.fidelity)


def margins_in_words(claim: Claim, artifact: Artifact, cluster: str | None = None) -> str:
    """What a simulated verdict has to stand: the margins of what the claim's judge reads, on the clusters it reads.

    The margin of memory is named where memory decides: the judge reads one, or with another one other points would
    fit. A judge of another artifact's claim on another `cluster` says so in `elsewhere`.
    """
    if (elsewhere := getattr(claim.judge, "elsewhere", None)) is not None:
        return margins_in_words(*elsewhere)
    if (watched := _watched(claim, artifact)) is None:
        return "every number (docs/margins.md)"
    seen, read = watched
    points = [point for point in seen.points if point.key in read.points] or seen.points
    said: dict[str, dict[str, None]] = {}
    for point in points:
        on = str(point.parameters.get(CLUSTER, cluster or artifact.cluster))
        said.setdefault(on, {}).update(dict.fromkeys(_of_point(point, read.metrics, on)))
    for on, texts in said.items():
        if not texts or _memory_enters(seen, read, on):
            texts[f"memory {ends(for_judging(on).memory_factor)}"] = None
    return "; ".join(f"{on}: {', '.join(texts)}" for on, texts in said.items())


def _memory_enters(seen: Results, read: Read, cluster: str) -> bool:
    """Whether a memory that is off by its margin changes what a judge reads: a memory, or which points fit."""
    from ptdp_core.simulator import load_cluster

    factor, usable = for_judging(cluster).memory_factor, load_cluster(cluster).usable_memory
    series = {point.series for point in seen.points if point.key in read.points}

    def moves(point: PointResult) -> bool:
        peak = point.metrics.get("peak_memory")
        if point.series not in series or peak is None or peak.value is None:
            return False
        if point.status == "oom":
            return peak.value <= factor * usable
        return point.parameters.get("recompute") == "auto" or (not point.paper and peak.value * factor > usable)

    return bool(read.metrics & names_of("memory")) or any(map(moves, seen.points))


def _read_to(claim: Claim, artifact: Artifact) -> str:
    """How far off the paper's values are that a claim's judge reads and that were read from a plot; '' without any."""
    if not getattr(claim.judge, "of_paper", False) or (watched := _watched(claim, artifact)) is None:
        return ""
    papers = [value for point in watched[0].points for name, value in point.paper.items() if name in watched[1].paper]
    steps = dict.fromkeys(with_unit(v.quantum / 2, v.unit) for v in papers if v.how == PLOT and v.quantum)
    return f", each plotted value off by at most {' or '.join(steps)}" if steps else ""


def _set_with(claim: Claim, artifact: Artifact) -> tuple[str, ...]:
    """The numbers of the cluster that were set with the published values that the claim's judge reads."""
    watched = _watched(claim, artifact)
    if watched is None or not watched[1].metrics & {name for point in watched[0].points for name in point.paper}:
        return ()
    return numbers_set_with(artifact.cluster, artifact.id)


def _watched(claim: Claim, artifact: Artifact) -> tuple[Results, Read] | None:
    """The committed results and what the claim's judge reads of them; None where none are committed."""
    path = REFERENCE / artifact.id / artifact.fidelities[0] / "record.json"
    if not path.is_file():
        return None
    results = _committed(path)
    seen, read = results.watched()
    with suppress(MissingResultError):
        claim.judge(seen)
    return results, read


@cache
def _committed(path: Path) -> Results:
    return Results.of_record(read_record(path))


def _of_point(point: PointResult, names: AbstractSet[str], cluster: str) -> Iterator[str]:
    """The margins of what is read of a point."""
    margins = for_judging(cluster)
    which = " with experts" if point.parameters.get("experts") else ""
    which = " with ZeRO-3" if point.parameters.get("data_parallel") == "zero3" else which
    for name in sorted(names & point.metrics.keys(), key=lambda name: (name not in METRICS, name)):
        made = made_of(name)
        if made is None or made.kind in (COUNTED, UNKNOWN, "memory"):
            continue
        value, ratio = (margins.factor(name, of, point.parameters) for of in ("value", "ratio"))
        what = SPELLED.get(name, name.replace("_", " "))
        if made.kind == "ratio":
            what, value = f"{what}, plus 1," if made.plus else what, ratio
        elif made.kind in SPEED and name in METRICS:
            what = "throughputs and times"
        one = "" if ends(value) == ends(ratio) else f" (one against the rest {ends(ratio)})"
        yield f"{what}{which} {ends(value)}{one}"


def ends(factor: float) -> str:
    """How far off a number may be."""
    return f"by a factor of {factor:.1f}" if factor > 1.5 else f"{100 / factor - 100:.1f} to +{100 * factor - 100:.1f}%"
