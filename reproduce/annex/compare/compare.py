"""`reproduce compare A B`: two result sets, what differs between them, and whether they can be compared at all.

A record of A meets the record of B with the same kind, id, fidelity and scale; of those, points meet by their key. What
would make a difference meaningless is said and not hidden behind numbers: another cluster, another specification of a
point, another class of host where time was measured. `compare(..., across_hosts=True)` lets the last one pass: then the
two environments stand beside the numbers, and nothing fails on them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from reproduce.experiment.fidelity import ELSEWHERE, FIDELITIES
from results.records import Metric, PointResult, Record, RecordedTimeline, read_record
from results.records.errors import InvalidResultsError, NothingSelectedError, UsageError
from results.records.provenance import MOMENTARY

# Wall-clock time passed: emulated links are shaped, but the processes around them run on this machine.
TIMED = tuple(fidelity.name for fidelity in FIDELITIES.values() if fidelity.timed)
# The rest of a host (kernel, memory) explains a number without making it another class of machine.
HOST_CLASS = ("machine", "cpu", "logical_cores", "gpus", "gpu_count")
# Of statuses and verdicts; everything else that is neither ok nor decided stands between the best and the worst.
BETTER = {"ok": 1, "holds": 1, "contradicted": -1}


class Key(NamedTuple):
    """What a record of one set and that of the other must have in common to meet."""

    kind: str
    id: str
    fidelity: str
    scale: str

    def __str__(self) -> str:
        return f"{self.id} ({self.fidelity}, scale {self.scale})"


@dataclass(frozen=True)
class ValueDifference:
    """A value of a point that is not the same in A and B.

    `samples_apart` says whether the samples of A and of B do not overlap; None where one of them has no samples.
    `relative` is (b - a)/|a|; None where a is 0.
    """

    point: str
    metric: str
    a: int | float
    b: int | float
    unit: str
    origin: str
    samples_apart: bool | None
    relative: float | None

    @property
    def size(self) -> float:
        """The relative difference without its sign; infinite where A's value is 0."""
        return math.inf if self.relative is None else abs(self.relative)


@dataclass(frozen=True)
class StatedChange:
    """A status, a timeline or a verdict that is not the same in A and B, in words."""

    what: str
    a: str
    b: str

    @property
    def worse(self) -> bool:
        """Whether a status is no longer ok, or a verdict further from 'holds' than it was."""
        return BETTER.get(self.b, 0) < BETTER.get(self.a, 0)

    def __str__(self) -> str:
        return f"{self.what}: {self.a} -> {self.b}"


@dataclass(frozen=True)
class Pair:
    """A record in A and in B: why they cannot be compared (empty: they can), and otherwise what differs.

    `points` counts the points in both, `values` the values compared. `only_in_a` and `only_in_b` name claims, points,
    or values or timelines of points, of one side only; `notes` explain differences without forbidding them.
    `environments` are those of A and B where their hosts are of different classes and were compared nevertheless.
    """

    key: Key
    obstacles: tuple[str, ...] = ()
    points: int = 0
    values: int = 0
    differences: tuple[ValueDifference, ...] = ()
    changes: tuple[StatedChange, ...] = ()
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether A and B could be compared, and nothing differs."""
        differing = (self.obstacles, self.differences, self.changes, self.only_in_a, self.only_in_b, self.environments)
        return not any(differing)

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
                if difference.samples_apart is not False and difference.size > share
            ]
        for asked, claim in ((share is not None, False), (claims, True)):
            if asked:
                changes = [change for change in self.changes if _is_claim(change.what) == claim]
                failures += [str(change) for change in changes if change.worse]
                failures += [f"only in A: {what}" for what in self.only_in_a if _is_claim(what) == claim]
        return failures


@dataclass(frozen=True)
class Comparison:
    """All pairs, and the records that only one set has."""

    pairs: tuple[Pair, ...]
    only_in_a: tuple[Key, ...]
    only_in_b: tuple[Key, ...]

    def failures(self, share: float | None, claims: bool) -> list[str]:
        """What `Pair.failures` says of each pair, and the records that only A has."""
        if share is None and not claims:
            return []
        failures = [f"{pair.key}: {why}" for pair in self.pairs for why in pair.failures(share, claims)]
        return failures + [f"{key}: only in A" for key in self.only_in_a]


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
        key = Key(record.kind, _name(record, file, path), record.fidelity, record.scale)
        if key in records:
            raise InvalidResultsError(
                f"{file} and {places[key]} are both {key}; needs one record of each; compare the files themselves"
            )
        records[key], places[key] = record, file
    return records


def _name(record: Record, file: Path, path: Path) -> str:
    """A record's id; with its folder's name, if that and not the id tells it from others in the results folder `path`.

    So it is with sealed predictions, with a record beside that of the fidelity, such as another project's trials, and
    with results of another cluster than a paper's.
    """
    folder = file.parent
    if path not in (file, folder) and (below := file.relative_to(path).parts)[0] == ELSEWHERE:
        return f"{ELSEWHERE}/{below[1]}/{record.id}"
    beside = folder.parent.name == record.id.rpartition("/")[2]
    usual = folder.name in (record.fidelity, f"{record.fidelity}-{record.scale}")
    told_by_folder = folder != path and (record.scale == "own" or (beside and not usual))
    return f"{folder.name}/{record.id}" if told_by_folder else record.id


def compare(a: Mapping[Key, Record], b: Mapping[Key, Record], across_hosts: bool = False) -> Comparison:
    """Compare two sets. Raises `NothingSelectedError` if no experiment is in both.

    With `across_hosts`, times of other classes of hosts are compared, too, beside both environments.
    """
    pairs = [_pair(key, a[key], b[key], across_hosts) for key in a if key in b]
    met = {pair.key[:2] for pair in pairs}
    unlike: dict[tuple[str, str], Pair] = {}  # of experiments with no fidelity and scale in both, by kind and id
    for key in a:
        others = [other for other in b if other[:2] == key[:2]]
        if others and key[:2] not in met:
            unlike.setdefault(key[:2], Pair(key, (_unlike(key, others),)))
    if not pairs and not unlike:
        raise NothingSelectedError(f"nothing in common: A has {_ids(a)}, B has {_ids(b)}")
    only_in_a, only_in_b = (
        tuple(key for key in records if key not in others and key[:2] not in unlike)
        for records, others in ((a, b), (b, a))
    )
    return Comparison((*pairs, *unlike.values()), only_in_a, only_in_b)


def _ids(records: Mapping[Key, Record]) -> str:
    ids = list(dict.fromkeys(key.id for key in records))
    return ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")


def _unlike(mine: Key, others: Sequence[Key]) -> str:
    """Why records of one id do not meet."""
    theirs = ", ".join(f"{other.fidelity} at scale {other.scale}" for other in others)
    if all(other.fidelity != mine.fidelity for other in others):
        return f"fidelity: A is {mine.fidelity}, B is {theirs}"
    return f"scale: A is {mine.fidelity} at scale {mine.scale}, B is {theirs}"


def _is_claim(what: str) -> bool:
    return what.startswith("claim ")


def _pair(key: Key, a: Record, b: Record, across_hosts: bool) -> Pair:
    both = [(p, q) for p in a.points for q in b.points if p.key == q.key]
    other_hosts = _other_hosts(a, b)
    obstacles = [*([] if across_hosts else other_hosts), *_other_cluster(a, b)]
    for p, q in both:
        obstacles += _other_point(p, q)
    if obstacles:
        return Pair(key, tuple(obstacles), len(both))
    common = [(p, q, metric) for p, q in both for metric in p.metrics if metric in q.metrics]
    candidates = [_difference(p.key, metric, p.metrics[metric], q.metrics[metric]) for p, q, metric in common]
    mine, theirs = _contents(a, b), _contents(b, a)
    return Pair(
        key,
        points=len(both),
        values=len(common),
        differences=tuple(difference for difference in candidates if difference is not None),
        changes=tuple(
            StatedChange(what, _in_words(mine[what]), _in_words(theirs[what]))
            for what in mine
            if not isinstance(mine[what], Metric) and what in theirs and mine[what] != theirs[what]
        ),
        only_in_a=tuple(what for what in mine if what not in theirs),
        only_in_b=tuple(what for what in theirs if what not in mine),
        notes=tuple(_notes(a, b, both)),
        environments=(_environment(a), _environment(b)) if other_hosts else (),
    )


def _unequal(rows: Iterable[tuple[str, object, object]]) -> list[str]:
    """Of rows (what, in A, in B) those that are not the same in A and B, in words."""
    return [f"{what}{in_a} in A, {in_b} in B" for what, in_a, in_b in rows if in_a != in_b]


def _other_hosts(a: Record, b: Record) -> list[str]:
    if a.fidelity not in TIMED:
        return []
    mine, theirs = _host(a), _host(b)
    return _unequal((f"host: {field} is ", mine[field], theirs[field]) for field in HOST_CLASS)


def _other_cluster(a: Record, b: Record) -> list[str]:
    mine, theirs = a.provenance.cluster, b.provenance.cluster
    if mine is not None and theirs is not None and mine.name == theirs.name:
        what, digests = f"cluster: the file of {mine.name} is another one", (mine.digest[:8], theirs.digest[:8])
        return [f"{what} (digest {digests[0]} in A, {digests[1]} in B)"] if mine != theirs else []
    return _unequal([("cluster: ", mine.name if mine else "none", theirs.name if theirs else "none")])


def _other_point(p: PointResult, q: PointResult) -> list[str]:
    parameters = dict.fromkeys([*p.parameters, *q.parameters])
    units = [metric for metric in p.metrics if metric in q.metrics]
    return [
        *_unequal((f"specification of {p.key}: {n}=", p.parameters.get(n), q.parameters.get(n)) for n in parameters),
        *_unequal((f"unit of {name} of {p.key}: ", p.metrics[name].unit, q.metrics[name].unit) for name in units),
    ]


def _difference(point: str, metric: str, a: Metric, b: Metric) -> ValueDifference | None:
    if a.value is None or b.value is None or a.value == b.value:
        return None  # a value that is missing has a status that says why
    apart = None
    if a.samples and b.samples:
        apart = max(a.samples) < min(b.samples) or max(b.samples) < min(a.samples)
    relative = (b.value - a.value) / abs(a.value) if a.value else None
    return ValueDifference(point, metric, a.value, b.value, a.unit, a.origin, apart, relative)


def _contents(record: Record, other: Record) -> dict[str, Any]:
    """What a record has, by name: points, statuses, values, timelines, verdicts.

    Of a point that only this record has there is the name alone. Where the status is not the same in the other record,
    one of them has no values, and the status says why: then there is what both have.
    """
    others = {point.key: point for point in other.points}
    contents: dict[str, Any] = {}
    for point in record.points:
        contents[f"point {point.key}"] = ""
        if (twin := others.get(point.key)) is not None:
            contents[f"status of {point.key}"] = point.status
            parts, its_parts = _parts(point), _parts(twin)
            alike = point.status == twin.status
            contents |= {what: part for what, part in parts.items() if alike or what in its_parts}
    return contents | {f"claim {claim.id}": claim.verdict for claim in record.claims}


def _parts(point: PointResult) -> dict[str, Metric | RecordedTimeline]:
    """The values and timelines of a point by name."""
    values = {f"{name} of {point.key}": metric for name, metric in point.metrics.items()}
    return values | {f"{timeline.origin} timeline of {point.key}": timeline for timeline in point.timelines}


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
    mine, theirs = _origin(a), _origin(b)
    return notes + _unequal((f"{what}: ", mine[what], theirs[what]) for what in mine)


def _values(point: PointResult) -> dict[str, int | float | None]:
    return {metric: measurement.value for metric, measurement in point.metrics.items()}


def _host(record: Record) -> dict[str, str]:
    """The operating system and the class of the machine, in words."""
    values = {field: getattr(record.provenance.host, field) for field in ("os", *HOST_CLASS)}
    return {
        field: (", ".join(value) or "none") if isinstance(value, tuple) else str(value)
        for field, value in values.items()
    }


def _origin(record: Record) -> dict[str, str]:
    """What may explain a difference, in words.

    Of the conditions of a run, what lasts: the frequency of the moment, which always differs, is left out.
    """
    made_by = record.provenance
    commit = "unknown" if made_by.commit is None else made_by.commit[:10] + (" with changes" if made_by.dirty else "")
    conditions = [f"{what} {value}" for what, value in sorted(made_by.environment.items()) if what not in MOMENTARY]
    return {
        "commit": commit,
        "versions": ", ".join(f"{package} {version}" for package, version in sorted(made_by.versions.items())),
        "host": ", ".join(_host(record).values()),
        "conditions": ", ".join(conditions) or "not recorded",
    }


def _environment(record: Record) -> str:
    """The machine and all conditions of a run."""
    conditions = sorted(record.provenance.environment.items())
    host = ", ".join(_host(record).values())
    return "; ".join([host, *(f"{what.replace('_', ' ')} {value}" for what, value in conditions)])
