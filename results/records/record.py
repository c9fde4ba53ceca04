"""Records: the format of every result file, and how it is written and read.

A `Record` holds the results of one artifact, benchmark or comparison at one fidelity. The classes mirror
`results/schema/record-2.schema.json` field by field, in its order. The schema decides: every record is checked against
it when it is written and when it is read. The classes raise a ValueError for the likeliest mistakes already where
they are made. Numbers are in base units (seconds, bytes, FLOP/s; no prefixes, no percent), always have a unit and an
origin, and are always finite.
"""

import math
import numbers
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from results import opening
from results.records import version_1
from results.records.errors import InvalidResultsError
from results.records.storage import atomic_write_bytes, json_lines
from results.records.validation import RecordError, check, parse

SCHEMA = "ptdp-record/2"
FIDELITIES = ("simulated", "emulated", "measured", "derived")
ORIGINS = (*FIDELITIES, "paper")
UNITS = (
    "1",
    "count",
    "s",
    "d",
    "1/s",
    "B",
    "B/s",
    "FLOP",
    "FLOP/s",
    "FLOP/B",
    "tokens/s",
    "sequences/s",
    "Hz",
    "W",
    "degC",
    "J",
    "USD",
)
LINES = 2  # a record's points and claims stand on a line each
STATUSES = ("ok", "invalid", "oom", "failed", "skipped")
VERDICTS = ("holds", "contradicted", "inconclusive", "not testable here", "paper inconsistent")
# By what a claim was judged: exact arithmetic, what is counted from a configuration, numbers of a run, the paper's own.
BY = ("derived", "counted", "simulated", "emulated", "measured", "paper")
READINGS = ("table", "text", "plot", "script")  # how a value was read from the paper


def _number(name: str, value: Any) -> int | float:
    """Return `value`, which may be a numpy scalar, as a plain int or float. Raises ValueError if it is not finite."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name}={value!r} is not a number; needs a finite int or float")
    plain = int(value) if isinstance(value, numbers.Integral) else float(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{name}={value!r} is not finite; needs a finite number")
    return plain


def _scalar(name: str, value: Any) -> int | float | str | bool | None:
    return value if value is None or isinstance(value, bool | str) else _number(name, value)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown; needs one of {', '.join(allowed)}")


def _plain(value: Any) -> Any:
    if isinstance(value, _Part):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class _Part:
    """The base of the frozen dataclasses below: their JSON form has a key for each field, in the fields' order."""

    def __post_init__(self) -> None:
        for entry in fields(self):  # type: ignore[arg-type]
            if isinstance(value := getattr(self, entry.name), list):
                self._set(entry.name, tuple(value))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        return {entry.name: _plain(getattr(self, entry.name)) for entry in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Number(_Part):
    """A value with its unit (of `UNITS`) and its origin (of `ORIGINS`)."""

    value: int | float | None
    unit: str
    origin: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value is not None or not isinstance(self, Metric):
            self._set("value", _number("value", self.value))
        _one_of("unit", self.unit, UNITS)
        _one_of("origin", self.origin, ORIGINS)


@dataclass(frozen=True)
class Interval(_Part):
    """The real value lies between `low` and `high`, in the metric's unit, with the nominal probability `coverage`."""

    low: int | float
    high: int | float
    coverage: float


@dataclass(frozen=True)
class Metric(Number):
    """One result of a point. `value` may be None if the point is not ok; a measured metric keeps its samples.

    `interval` is how sure a simulated value is; None where there are no data to say it from.
    """

    samples: tuple[int | float, ...] | None = None
    interval: Interval | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples is not None:
            self._set("samples", tuple(_number(f"samples[{i}]", sample) for i, sample in enumerate(self.samples)))
        if self.origin == "measured" and self.value is not None and not self.samples:
            raise ValueError(f"samples={self.samples!r} of a measured value; needs at least one sample")

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        for optional in ("samples", "interval"):
            if document[optional] is None:
                del document[optional]
        return document


@dataclass(frozen=True)
class PaperValue(_Part):
    """A value from the paper, `how` it was read (table, text, plot, script), and the step that it was rounded to."""

    value: int | float
    unit: str
    how: str
    quantum: int | float | None = None
    origin: str = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("value", _number("value", self.value))
        if self.quantum is not None:
            self._set("quantum", _number("quantum", self.quantum))
        _one_of("unit", self.unit, UNITS)
        _one_of("how", self.how, READINGS)


@dataclass(frozen=True)
class RecordedEvent(_Part):
    """A pass of a microbatch through a stage: F, B, I or W (`kind`), from `start` to `end`, in seconds."""

    kind: str
    stage: int
    microbatch: int
    start: int | float
    end: int | float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("start", "end"):
            self._set(name, _number(name, getattr(self, name)))


@dataclass(frozen=True)
class RecordedTimeline(_Part):
    """When each pass of one training iteration ran: `ranks[r]` are the events of pipeline rank r, in their order."""

    origin: str
    ranks: tuple[tuple[RecordedEvent, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("origin", self.origin, ORIGINS)


@dataclass(frozen=True)
class PointResult(_Part):
    """One marker of a figure or row of a table. `fingerprint` is a digest of everything that determines its numbers.

    `parameters` are plain values: numbers, text, truth values or None. `timelines` are those of one of its iterations,
    at most one for each origin.
    """

    key: str
    series: str
    label: str
    parameters: Mapping[str, Any]
    status: str
    reason: str | None
    fingerprint: str
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    paper: Mapping[str, PaperValue] = field(default_factory=dict)
    timelines: tuple[RecordedTimeline, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("status", self.status, STATUSES)
        if (self.status == "ok") == bool(self.reason) or self.reason == "":
            needs = "None" if self.status == "ok" else "to say why"
            raise ValueError(f"reason={self.reason!r} of a point whose status is {self.status!r}; needs {needs}")
        for name, metric in self.metrics.items():
            if self.status == "ok" and metric.value is None:
                raise ValueError(f"metrics.{name}=None of a point whose status is 'ok'; needs a number")
        self._set("parameters", {k: _scalar(f"parameters.{k}", v) for k, v in self.parameters.items()})

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        if not self.timelines:
            del document["timelines"]
        return document


@dataclass(frozen=True)
class ClaimResult(_Part):
    """A sentence of the paper and the verdict on it. `fidelity` is the one that is needed to test it.

    `by` is by what it was judged (of `BY`), `rule` where its bounds come from, and `set_with` names numbers of the
    simulator that were set with what the sentence speaks of; records of earlier versions have none of the three.
    """

    id: str
    sentence: str
    place: str
    fidelity: str
    tolerance: str | None
    verdict: str
    explanation: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    by: str | None = None
    rule: str | None = None
    set_with: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _one_of("fidelity", self.fidelity, FIDELITIES)
        _one_of("verdict", self.verdict, VERDICTS)
        if self.by is not None:
            _one_of("by", self.by, BY)

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        for optional in ("by", "rule", "set_with"):
            if not document[optional]:
                del document[optional]
        return document


@dataclass(frozen=True)
class PaperPlace(_Part):
    """A place in the paper: a label such as "Figure 12" and, if it helps, a section."""

    label: str
    section: str | None = None


@dataclass(frozen=True)
class ClusterRef(_Part):
    """The cluster that was simulated or emulated: its name and the `digest_file()` of its data file."""

    name: str
    digest: str


@dataclass(frozen=True)
class Host(_Part):
    """The machine, described by an allow-list. `gpus` are model names, each once; `gpu_count` counts the devices."""

    os: str
    machine: str
    cpu: str | None
    logical_cores: int | None
    memory_bytes: int | None
    gpus: tuple[str, ...] = ()
    gpu_count: int = 0


@dataclass(frozen=True)
class Provenance(_Part):
    """Where the numbers come from: sources, versions, machine, command. `provenance.collect` makes it.

    `environment` are conditions of the run, such as the governor of the processor, as far as they could be read.
    """

    commit: str | None
    dirty: bool | None
    versions: Mapping[str, str]
    host: Host
    command: tuple[str, ...]
    seed: int | None
    started: str
    duration_s: int | float
    cluster: ClusterRef | None = None
    code_digest: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("duration_s", _number("duration_s", self.duration_s))

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        if not self.environment:
            del document["environment"]
        return document


@dataclass(frozen=True)
class Record(_Part):
    """One result file. `kind` is artifact, benchmark or comparison; `state` is complete, or partial if interrupted."""

    kind: str
    id: str
    title: str
    paper: PaperPlace | None
    fidelity: str
    scale: str
    state: str
    provenance: Provenance
    points: tuple[PointResult, ...] = ()
    claims: tuple[ClaimResult, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **super().to_json()}

    @classmethod
    def from_json(cls, document: Any, source: str = "record") -> "Record":
        """Make a record of parsed JSON. Raises a `RecordError` that names `source` if `document` is no record."""
        if isinstance(document, Mapping) and document.get("schema") == version_1.SCHEMA:
            document = version_1.to_version_2(document, source)
        check(document, source)
        made_by = dict(document["provenance"], host=Host(**document["provenance"]["host"]))
        if made_by["cluster"] is not None:
            made_by["cluster"] = ClusterRef(**made_by["cluster"])
        parts = {key: value for key, value in document.items() if key != "schema"}
        parts["paper"] = PaperPlace(**parts["paper"]) if parts["paper"] is not None else None
        parts["provenance"] = Provenance(**made_by)
        parts["points"] = tuple(_point(point) for point in parts["points"])
        parts["claims"] = tuple(
            ClaimResult(**{**claim, "numbers": {k: Number(**v) for k, v in claim["numbers"].items()}})
            for claim in parts["claims"]
        )
        return cls(**parts)


def _point(document: Mapping[str, Any]) -> PointResult:
    metrics = {name: _metric(metric) for name, metric in document["metrics"].items()}
    paper = {name: PaperValue(**value) for name, value in document["paper"].items()}
    timelines = tuple(
        RecordedTimeline(
            timeline["origin"], tuple(tuple(RecordedEvent(**event) for event in rank) for rank in timeline["ranks"])
        )
        for timeline in document.get("timelines", ())
    )
    return PointResult(**{**document, "metrics": metrics, "paper": paper, "timelines": timelines})


def _metric(document: Mapping[str, Any]) -> Metric:
    interval = document.get("interval")
    return Metric(**{**document, "interval": interval and Interval(**interval)})


def write_record(record: Record, path: str | os.PathLike[str]) -> None:
    """Check `record` and write it to `path`, whole or not at all. Raises `RecordError` or `StorageError`."""
    document = record.to_json()
    check(document, os.fspath(path))
    text = json_lines(document, LINES) + "\n"
    try:
        data = text.encode()
    except UnicodeEncodeError:  # lone surrogates: undecodable bytes of a command line or of a file name
        data = (json_lines(document, LINES, ascii=True) + "\n").encode()
    atomic_write_bytes(path, data)


def read_record(path: str | os.PathLike[str], remedy: str = "move the file away") -> Record:
    """Read the record in `path`, which may be packed by gzip.

    Raises `InvalidResultsError` for a file that holds none, with the `remedy`, or that cannot be read, and
    `FileNotFoundError` if there is no file.
    """
    source = os.fspath(path)
    try:
        return Record.from_json(parse(opening.read_packed(path, opening.TEXT), source), source)
    except FileNotFoundError:
        raise
    except zlib.error as error:
        raise InvalidResultsError(f"cannot unpack {source}: {error} ({remedy})") from None
    except OSError as error:
        raise InvalidResultsError(f"cannot read {source}: {error.strerror}") from None
    except RecordError as error:
        raise InvalidResultsError(f"{error} ({remedy})") from None
