"""`reproduce compare A B`: two result sets, what differs between them, and whether they can be compared at all.

A record of A meets the record of B with the same kind, id, fidelity and scale; of those, points meet by their key. What
would make a difference meaningless is said and not hidden behind numbers: another cluster, another specification of a
point, another class of host where time was measured. `compare(..., across_hosts=True)` lets the last one pass: then the
two environments stand beside the numbers, and nothing fails on them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.records import Host, Metric, PointResult, Record, RecordedTimeline, read_record
from benchmarks.records.environment import MOMENTARY
from benchmarks.records.errors import (
    DONE,
    INVALID_RESULTS,
    REGRESSED,
    InvalidResultsError,
    NothingSelectedError,
    UsageError,
)
from reproduce.experiment.fidelity import FIDELITIES

# Wall-clock time passed: emulated links are shaped, but the processes around them run on this machine.
TIMED = tuple(fidelity.name for fidelity in FIDELITIES.values() if fidelity.timed)
# The rest of a host (kernel, memory) explains a number without making it another class of machine.
OK = "ok"
HOST_CLASS = ("machine", "cpu", "logical_cores", "gpus", "gpu_count")

Key = tuple[str, str, str, str]  # kind, id, fidelity, scale


@dataclass(frozen=True)
class Difference:
    """A value of a point that is not the same in A and B.

    `samples_apart` says whether the samples of A and of B do not overlap; None where one of them has no samples.
    """

    point: str
    metric: str
    a: int | float
    b: int | float
    unit: str
    origin: str
    samples_apart: bool | None = None

    @property
    def relative(self) -> float | None:
        """(b - a)/|a|, where a is not 0."""
        return (self.b - self.a) / abs(self.a) if self.a else None


class Change(NamedTuple):
    """A status, a timeline or a verdict that is not the same in A and B, in words."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Pair:
    """A record in A and in B: why they cannot be compared (empty: they can), and otherwise what differs.

    `missing` are claims, points, or values or timelines of points, of one side only, as (side, what); `notes` explain
    differences without forbidding them; `values` counts the values compared. `environments` are those of A and B where
    their hosts are of different classes and were compared nevertheless.
    """

    key: Key
    title: str
    obstacles: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    changes: tuple[Change, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    points: int = 0
    values: int = 0
    environments: tuple[str, ...] = ()

    def failures(self, share: float | None, claims: bool) -> list[str]:
        """Why B is no replacement of A; empty if it is one, or if the hosts are of different classes.

        With `share`: a value that differs by more than it, and where samples were taken only if these do not overlap; a
        status that is no longer ok; what only A has. With `claims`: a claim whose verdict is worse, or that B lacks.
        """
        if self.environments:
            return []
        failures = []
        if share is not None:
            failures += [
                f"{difference.metric} of {difference.point} differs by more than {share:.3g}: "
                + ("from 0" if difference.relative is None else f"{difference.relative:+.1%}")
                for difference in self.differences
                if difference.samples_apart is not False and abs(difference.relative or math.inf) > share
            ]
            failures += [f"{what}: {a} -> {b}" for what, a, b in self.changes if what.startswith("status ") and a == OK]
            failures += [f"only in A: {what}" for side, what in self.missing if side == "A" and not _is_claim(what)]
        if claims:
            failures += [f"{what}: {a} -> {b}" for what, a, b in self.changes if _is_claim(what) and _worse(a, b)]
            failures += [f"only in A: {what}" for side, what in self.missing if side == "A" and _is_claim(what)]
        return failures


@dataclass(frozen=True)
class Comparison:
    """All pairs, and the records that only one set has."""

    pairs: tuple[Pair, ...]
    only_a: tuple[Key, ...]
    only_b: tuple[Key, ...]

    def failures(self, share: float | None, claims: bool) -> list[str]:
        """What `Pair.failures` says of each pair, and the records that only A has."""
        if share is None and not claims:
            return []
        failures = [f"{name(pair.key)}: {why}" for pair in self.pairs for why in pair.failures(share, claims)]
        return failures + [f"{name(key)}: only in A" for key in self.only_a]

    def code(self, share: float | None = None, claims: bool = False) -> int:
        """The exit code: differences are a result, unless they are to fail; what cannot be compared is none."""
        if self.failures(share, claims):
            return REGRESSED
        return INVALID_RESULTS if any(pair.obstacles for pair in self.pairs) else DONE


def load(path: Path) -> dict[Key, Record]:
    """The records of a file, or of a folder and those below it.

    Raises `UsageError` for a path that is not there, `InvalidResultsError` for a file that is no record, and for two
    records of one experiment; `NothingSelectedError` for a folder without any.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist; needs a results folder or a record.json")
    files = sorted(path.rglob("record.json")) if path.is_dir() else [path]
    if not files:
        raise NothingSelectedError(f"{path} holds no record.json; needs a folder that a run has written to")
    records: dict[Key, Record] = {}
    places: dict[Key, Path] = {}
    for file in files:
        record = read_record(file)
        key = record.kind, record.id, record.fidelity, record.scale
        if key in records:
            raise InvalidResultsError(
                f"{file} and {places[key]} are both {name(key)}; needs one record of each; compare the files themselves"
            )
        records[key], places[key] = record, file
    return records


def name(key: Key) -> str:
    """A record in words."""
    _, id, fidelity, scale = key
    return f"{id} ({fidelity}, scale {scale})"


def compare(a: Mapping[Key, Record], b: Mapping[Key, Record], across_hosts: bool = False) -> Comparison:
    """Compare two sets. Raises `NothingSelectedError` if no experiment is in both.

    With `across_hosts`, times of other classes of hosts are compared, too, beside both environments.
    """
    pairs = [_pair(key, a[key], b[key], across_hosts) for key in a if key in b]
    met = {key[:2] for key in a if key in b}
    for kind, id in dict.fromkeys(key[:2] for key in a):
        others = [key for key in b if key[:2] == (kind, id)]
        if others and (kind, id) not in met:
            mine = next(key for key in a if key[:2] == (kind, id))
            pairs.append(Pair(mine, a[mine].title, tuple(_unlike(mine, others))))
            met.add((kind, id))
    if not pairs:
        raise NothingSelectedError(f"nothing in common: A has {_ids(a)}, B has {_ids(b)}")
    matched = {pair.key[:2] for pair in pairs if pair.key not in b}

    def only(records: Mapping[Key, Record], others: Mapping[Key, Record]) -> tuple[Key, ...]:
        return tuple(key for key in records if key not in others and key[:2] not in matched)

    return Comparison(tuple(pairs), only(a, b), only(b, a))


def _ids(records: Mapping[Key, Record]) -> str:
    ids = list(dict.fromkeys(id for _, id, _, _ in records))
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _unlike(mine: Key, others: Sequence[Key]) -> list[str]:
    """Why records of one id do not meet."""
    theirs = ", ".join(f"{fidelity} at scale {scale}" for _, _, fidelity, scale in others)
    if all(other[2] != mine[2] for other in others):
        return [f"fidelity: A is {mine[2]}, B is {theirs}"]
    return [f"scale: A is {mine[2]} at scale {mine[3]}, B is {theirs}"]


def _is_claim(what: str) -> bool:
    return what.startswith("claim ")


def _worse(old: str, new: str) -> bool:
    """Whether a verdict is further from 'holds' than it was; all that is not decided stands between the two."""
    rank = {"contradicted": 0, "holds": 2}
    return rank.get(new, 1) < rank.get(old, 1)


def _pair(key: Key, a: Record, b: Record, across_hosts: bool) -> Pair:
    other_hosts = _host_obstacles(a, b)
    obstacles = (*(() if across_hosts else other_hosts), *_cluster_obstacles(a, b))
    both = [(p, q) for p in a.points for q in b.points if p.key == q.key]
    obstacles += tuple(text for p, q in both for text in _point_obstacles(p, q))
    if obstacles:
        return Pair(key, a.title, obstacles, points=len(both))
    common = [(p, q, metric) for p, q in both for metric in p.metrics if metric in q.metrics]
    alike = {p.key: p.status == q.status for p, q in both}
    mine, theirs = _contents(a, alike), _contents(b, alike)
    candidates = [_difference(p.key, metric, p.metrics[metric], q.metrics[metric]) for p, q, metric in common]
    return Pair(
        key,
        a.title,
        differences=tuple(difference for difference in candidates if difference is not None),
        changes=tuple(
            Change(what, _in_words(mine[what]), _in_words(theirs[what]))
            for what in mine
            if not isinstance(mine[what], Metric) and what in theirs and mine[what] != theirs[what]
        ),
        missing=(
            *(("A", what) for what in mine if what not in theirs),
            *(("B", what) for what in theirs if what not in mine),
        ),
        notes=tuple(_notes(a, b, both)),
        points=len(both),
        values=len(common),
        environments=(_environment(a), _environment(b)) if other_hosts else (),
    )


def _host_obstacles(a: Record, b: Record) -> list[str]:
    if a.fidelity not in TIMED:
        return []
    mine, theirs = a.provenance.host, b.provenance.host
    return [
        f"host: {field} is {_show(getattr(mine, field))} in A, {_show(getattr(theirs, field))} in B"
        for field in HOST_CLASS
        if getattr(mine, field) != getattr(theirs, field)
    ]


def _show(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


def _cluster_obstacles(a: Record, b: Record) -> list[str]:
    mine, theirs = a.provenance.cluster, b.provenance.cluster
    if mine == theirs:
        return []
    if mine is None or theirs is None or mine.name != theirs.name:
        names = [cluster.name if cluster else "none" for cluster in (mine, theirs)]
        return [f"cluster: {names[0]} in A, {names[1]} in B"]
    return [
        f"cluster: the file of {mine.name} is another one (digest {mine.digest[:8]} in A, {theirs.digest[:8]} in B)"
    ]


def _point_obstacles(p: PointResult, q: PointResult) -> list[str]:
    names = [n for n in dict.fromkeys([*p.parameters, *q.parameters]) if p.parameters.get(n) != q.parameters.get(n)]
    texts = [f"specification of {p.key}: {n}={p.parameters.get(n)} in A, {q.parameters.get(n)} in B" for n in names]
    for metric in p.metrics.keys() & q.metrics.keys():
        units = p.metrics[metric].unit, q.metrics[metric].unit
        if units[0] != units[1]:
            texts.append(f"unit of {metric} of {p.key}: {units[0]} in A, {units[1]} in B")
    return texts


def _difference(point: str, metric: str, a: Metric, b: Metric) -> Difference | None:
    if a.value is None or b.value is None or a.value == b.value:
        return None  # a value that is missing has a status that says why
    apart = None
    if a.samples and b.samples:
        apart = max(a.samples) < min(b.samples) or max(b.samples) < min(a.samples)
    return Difference(point, metric, a.value, b.value, a.unit, a.origin, apart)


def _contents(record: Record, alike: Mapping[str, bool]) -> dict[str, Any]:
    """What a record has, by name: points, statuses, values, timelines, verdicts.

    `alike` has the keys of the points that both records have, and whether their statuses are the same: only then are
    values and timelines compared.
    """
    contents: dict[str, Any] = {}
    for point in record.points:
        contents[f"point {point.key}"] = ""
        if point.key in alike:
            contents[f"status of {point.key}"] = point.status
        if alike.get(point.key):
            contents |= {f"{name} of {point.key}": metric for name, metric in point.metrics.items()}
            contents |= {f"{timeline.origin} timeline of {point.key}": timeline for timeline in point.timelines}
    return contents | {f"claim {claim.id}": claim.verdict for claim in record.claims}


def _in_words(content: str | RecordedTimeline) -> str:
    """A status or a verdict as it is, a timeline by when its last pass ends."""
    if isinstance(content, str):
        return content
    return f"ends at {max((event.end for rank in content.ranks for event in rank), default=0):.6g} s"


def _notes(a: Record, b: Record, both: Sequence[tuple[PointResult, PointResult]]) -> list[str]:
    """What else is not the same, and what a difference means."""
    notes = [f"{side} was interrupted: it is partial" for side, r in (("A", a), ("B", b)) if r.state == "partial"]
    same = [p.key for p, q in both if p.fingerprint == q.fingerprint and _values(p) != _values(q)]
    if same and a.fidelity not in TIMED:
        notes.append(f"{same[0]} has the same fingerprint in A and B, and other values: one of them is not what ran")
    if a.fidelity in TIMED:
        notes.append("time was taken in two sessions: noise between them is not excluded; reproduce gate decides")
    for what, of in _PROVENANCE.items():
        mine, theirs = of(a), of(b)
        if mine != theirs:
            notes.append(f"{what}: {mine} in A, {theirs} in B")
    return notes


def _values(point: PointResult) -> dict[str, int | float | None]:
    return {metric: measurement.value for metric, measurement in point.metrics.items()}


def _commit(record: Record) -> str:
    made_by = record.provenance
    return "unknown" if made_by.commit is None else made_by.commit[:10] + (" with changes" if made_by.dirty else "")


def _conditions(record: Record) -> str:
    """What lasts of the conditions of a run; the frequency of the moment, which always differs, is left out."""
    known = record.provenance.environment
    return ", ".join(f"{what} {known[what]}" for what in sorted(known) if what not in MOMENTARY) or "not recorded"


def _environment(record: Record) -> str:
    """The machine and all conditions of a run."""
    known = record.provenance.environment
    return "; ".join([_host(record), *(f"{what.replace('_', ' ')} {value}" for what, value in sorted(known.items()))])


def _versions(record: Record) -> str:
    return ", ".join(f"{package} {version}" for package, version in sorted(record.provenance.versions.items()))


def _host(record: Record) -> str:
    host = record.provenance.host
    return ", ".join(_show(getattr(host, field.name)) for field in fields(Host) if field.name in ("os", *HOST_CLASS))


_PROVENANCE: dict[str, Callable[[Record], str]] = {
    "commit": _commit,
    "versions": _versions,
    "host": _host,
    "conditions": _conditions,
}
