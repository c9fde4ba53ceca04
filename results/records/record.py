"""Records: the format of every result file, and how it is written and read.

A `Record` holds the results of one artifact, benchmark or comparison at one fidelity. Its classes are the format:
`results/schema/record-2.schema.json` is made from them (`python -m results.records.schema` writes it), and every record
is checked against it when it is written and when it is read. Numbers are in base units (seconds, bytes, FLOP/s; no
prefixes, no percent), always have a unit and an origin, and are always finite.
"""

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from results import opening
from results.records import version_1
from results.records.document_parts import Name, Real, RecordPart, SchemaRule, Text, told
from results.records.errors import InvalidResultsError
from results.records.storage import atomic_write_bytes, json_lines
from results.records.validation import RECORD, RecordError, check, parse

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

Fidelity = Annotated[str, SchemaRule("fidelity", enum=FIDELITIES)]
Origin = Annotated[str, SchemaRule("origin", enum=ORIGINS)]
SHA_256 = "^[0-9a-f]{64}$"
DIGITS = "a SHA-256 digest, 64 lower-case hexadecimal digits"
Digest = Annotated[str, SchemaRule("digest", pattern=SHA_256, description=DIGITS)]
BASE_UNITS = "base units: no prefixes, no percent; d is a day, 1 a ratio, degC degrees Celsius"
Unit = Annotated[str, SchemaRule("unit", enum=UNITS, description=BASE_UNITS)]
Id = Annotated[str, SchemaRule(pattern="^[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)?$")]
Letters = Annotated[str, SchemaRule(pattern="^[A-Za-z][A-Za-z0-9_]*$")]
Package = Annotated[str, SchemaRule(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Commit = Annotated[str, SchemaRule(pattern="^[0-9a-f]{40}$")]
TIME = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"T([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]{1,9})?Z$"
)
# What a measured value, and a point that is ok or not, must have besides.
WITH_SAMPLES = {
    "if": {
        "properties": {"origin": {"const": "measured"}, "value": {"type": "number"}},
        "required": ["origin", "value"],
    },
    "then": {
        "properties": {"samples": {"minItems": 1, "description": "a measured value keeps its samples"}},
        "required": ["samples"],
    },
}
A_VALUE = {"type": "number", "description": "only a point that is not ok may lack a value"}
WITH_REASON = {
    "if": {"properties": {"status": {"const": "ok"}}, "required": ["status"]},
    "then": {
        "properties": {
            "reason": {"type": "null", "description": "only a point that is not ok has a reason"},
            "metrics": {"additionalProperties": {"properties": {"value": A_VALUE}}},
        }
    },
    "else": {"properties": {"reason": {"type": "string", "description": "a point that is not ok says why"}}},
}


@dataclass(frozen=True)
class Number(RecordPart, called="number"):
    """A value with its unit and its origin."""

    value: Real = told("The value, in `unit`.")
    unit: Unit = told("Unit of the value.")
    origin: Origin = told("How the value was come by.")


@dataclass(frozen=True)
class Interval(RecordPart, called="interval"):
    """The real value lies between two ends with a nominal probability."""

    low: Real = told("Lower end, in the unit of the value.")
    high: Real = told("Upper end, in the unit of the value.")
    coverage: float = told("Nominal probability that the real value lies between the ends.", minimum=0)


@dataclass(frozen=True)
class Metric(RecordPart, called="metric", together=WITH_SAMPLES):
    """One result of a point."""

    value: Real | None = told("The value, in `unit`; null only if the point is not ok.")
    unit: Unit = told("Unit of the value and of its samples.")
    origin: Origin = told("How this value was come by.")
    samples: tuple[Real, ...] | None = told("The observations behind a value, in its unit.", None, absent=True)
    interval: Interval | None = told(
        "How sure a simulated value is; absent where there are no data to say it from, and in older records.",
        None,
        absent=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.origin == "measured" and self.value is not None and not self.samples:
            raise ValueError(f"samples={self.samples!r} of a measured value; needs at least one sample")


@dataclass(frozen=True)
class PaperValue(RecordPart, called="paper_value"):
    """A value from the paper."""

    value: Real = told("The value that the paper gives, in `unit`.")
    unit: Unit = told("Unit of the value and of `quantum`.")
    how: Annotated[str, SchemaRule(enum=READINGS)] = told("Where in the paper the number was read.")
    quantum: Real | None = told(
        "The step to which the paper rounded, in the same unit; null if unknown.", None, minimum=0
    )
    origin: str = told("Where the value comes from.", "paper", const="paper")


@dataclass(frozen=True)
class RecordedEvent(RecordPart, called="event"):
    """A pass of a microbatch through a stage."""

    kind: str = told(
        "The pass: F forward, B backward; or a backward pass split into I (input gradients) and W (weight gradients).",
        enum=("F", "B", "I", "W"),
    )
    stage: int = told("Its stage, from 0.", minimum=0)
    microbatch: int = told("Its microbatch, from 0.", minimum=0)
    start: Real = told("When it began, in seconds since the iteration did.")
    end: Real = told("When it ended, in seconds since the iteration began.")


@dataclass(frozen=True)
class RecordedTimeline(RecordPart, called="timeline"):
    """When each pass of one training iteration ran."""

    origin: Origin = told("How the times were come by.")
    ranks: tuple[tuple[RecordedEvent, ...], ...] = told(
        "For each pipeline rank, from 0, its events in their order.", minItems=1
    )


@dataclass(frozen=True)
class PointResult(RecordPart, called="point", together=WITH_REASON):
    """One marker of a figure or row of a table."""

    key: Text = told("Name of the point, unique in the record.")
    series: str = told("The line or group of the figure that it belongs to; empty if there is only one.")
    label: str = told("The point for people.")
    parameters: Mapping[Letters, Any] = told(
        "Its configuration: values by the name of their field, with the paper's letters."
    )
    status: Annotated[str, SchemaRule(enum=STATUSES)] = told(
        "Whether it has results: ok; invalid configuration; oom (does not fit in memory); failed; skipped."
    )
    reason: Text | None = told("Why the point is not ok; null if it is.")
    fingerprint: Digest = told("Digest of all that its results depend on; with an equal one they are reused.")
    metrics: Mapping[Name, Metric] = told("Its results, by name.", {})
    paper: Mapping[Name, PaperValue] = told("The paper's values for these metrics, by name.", {})
    timelines: tuple[RecordedTimeline, ...] = told(
        "What ran when in an iteration, once for each origin; left out where nothing is kept of it.",
        (),
        absent=True,
        minItems=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.status == "ok") == bool(self.reason) or self.reason == "":
            needs = "None" if self.status == "ok" else "to say why"
            raise ValueError(f"reason={self.reason!r} of a point whose status is {self.status!r}; needs {needs}")
        for name, metric in self.metrics.items():
            if self.status == "ok" and metric.value is None:
                raise ValueError(f"metrics.{name}=None of a point whose status is 'ok'; needs a number")


@dataclass(frozen=True)
class ClaimResult(RecordPart, called="claim"):
    """A sentence of the paper and the verdict on it. Records of earlier versions have none of the last three fields."""

    id: Name = told("Name of the claim, unique in the record.")
    sentence: Text = told("The sentence judged, verbatim where it is the paper's.")
    place: Text = told("Where it stands, such as Section 5.3.2.")
    fidelity: Fidelity = told("The least demanding fidelity at which it can be judged.")
    tolerance: Text | None = told("When it holds, if that is not plain from the sentence.")
    verdict: Annotated[str, SchemaRule(enum=VERDICTS)] = told("What the results say of the sentence.")
    explanation: Text = told("Why, with numbers.")
    numbers: Mapping[Name, Number] = told("The numbers behind the verdict, by name.", {})
    by: Annotated[str, SchemaRule(enum=BY)] | None = told(
        "By what it was judged; missing where it was not, and in earlier records.", None, absent=True
    )
    rule: Text | None = told(
        "The rule that its bounds come from (docs/reading.md); missing where it names none.", None, absent=True
    )
    set_with: tuple[Text, ...] = told(
        "Numbers of the simulator that were set with what the sentence speaks of.", (), absent=True, minItems=1
    )


@dataclass(frozen=True)
class PaperPlace(RecordPart):
    """A place in the paper."""

    label: Text = told("What is reproduced, such as Figure 12.")
    section: Text | None = told("Section of the paper that it stands in; null if that is not one.", None)


@dataclass(frozen=True)
class ClusterRef(RecordPart):
    """The cluster that was simulated or emulated, with the `digest_file()` of its data file."""

    name: Text = told("Name of the cluster.")
    digest: Digest = told("Digest of its file.")


@dataclass(frozen=True)
class Host(RecordPart):
    """The machine, described by an allow-list."""

    os: Text = told("Operating system and version of its kernel.")
    machine: Text = told("Processor architecture.")
    cpu: Text | None = told("Model of the processor; null if unknown.")
    logical_cores: int | None = told("Number of logical cores; null if unknown.", minimum=1)
    memory_bytes: int | None = told("Main memory in bytes; null if unknown.", minimum=1)
    gpus: tuple[Text, ...] = told("Model names of the GPUs, each once.", ())
    gpu_count: int = told("Number of GPUs.", 0, minimum=0)


@dataclass(frozen=True)
class Provenance(RecordPart, called="provenance"):
    """Where the numbers come from: sources, versions, machine, command. `provenance.collect` makes it."""

    commit: Commit | None = told("Git commit of the sources; null outside a checkout.")
    dirty: bool | None = told("Whether the sources differ from the commit; null without one.")
    versions: Mapping[Package, Text] = told("Versions of Python, of this project and of the packages used, by name.")
    host: Host = told(
        "The machine: an allow-list of what explains a number, nothing that names a person, a machine or a folder."
    )
    command: tuple[str, ...] = told("The command line, with paths and addresses taken out.")
    seed: int | None = told("Seed of random choices; null if there are none.")
    started: str = told("When the run began: an RFC 3339 time in UTC, such as 2021-11-14T09:00:00Z.", pattern=TIME)
    duration_s: Real = told("How long the run took, in seconds.", minimum=0)
    cluster: ClusterRef | None = told("The cluster file that was simulated; null if none was.", None)
    code_digest: Annotated[str, SchemaRule(pattern=SHA_256)] | None = told(
        f"What the sources that compute the numbers were: {DIGITS}; null if unknown.", None
    )
    environment: Mapping[Name, Text] = told(
        "Conditions of the run by name, such as the processor's governor and frequency, the cores that control groups "
        "allow, and the GPUs' clocks, power cap and throttle reasons; left out where none can be read.",
        {},
        absent=True,
    )


@dataclass(frozen=True)
class Record(RecordPart):
    """One result file."""

    kind: str = told(
        "What the record is of: an artifact of the paper, a benchmark, or a comparison of results.",
        enum=("artifact", "benchmark", "comparison"),
    )
    id: Id = told("Id of the artifact, benchmark or comparison, as the command line takes it.")
    title: Text = told("What it shows, in a line.")
    paper: PaperPlace | None = told("What of the paper it reproduces; null if nothing.")
    fidelity: Fidelity = told("How the numbers were come by; the origin of each number says it in detail.")
    scale: Text = told("The size of the experiment, such as paper or laptop.")
    state: str = told("Whether all points were run; partial: the run was interrupted.", enum=("complete", "partial"))
    provenance: Provenance = told("What the numbers depend on besides the points: sources, machine and command.")
    points: tuple[PointResult, ...] = told("The results, one for each configuration.", ())
    claims: tuple[ClaimResult, ...] = told("The sentences judged on these results, with their verdicts.", ())
    notes: tuple[Text, ...] = told("What to know about the results, as sentences.", ())

    def to_json(self) -> dict[str, Any]:
        """The whole document, with the name of its format."""
        return {"schema": SCHEMA, **super().to_json()}

    @classmethod
    def from_json(cls, document: Any, source: str = "record") -> "Record":
        """Make a record of parsed JSON. Raises a `RecordError` that names `source` if `document` is no record."""
        if isinstance(document, Mapping) and document.get("schema") == version_1.SCHEMA:
            document = version_1.to_version_2(document, source)
        check(document, RECORD, source)
        return super().from_json({key: value for key, value in document.items() if key != "schema"})


def write_record(record: Record, path: str | os.PathLike[str]) -> None:
    """Check `record` and write it to `path`, whole or not at all. Raises `RecordError` or `StorageError`."""
    document = record.to_json()
    check(document, RECORD, os.fspath(path))
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
