"""The format in which every result is written to disk.

record          the types of one result file (`Record` and its parts), writing and reading it
document_parts  what these types have in common: their schema, and how they become JSON and are made of it
schema          writes the schema of records, `results/schema/record-2.schema.json`
documents       the documents that `--json` prints, each with a schema of its own
version_1       reads records of version 1
validation      the check against `results/schema/`, with one line that says what is wrong and where
storage         files written whole or not at all; digests of files and of configurations
units           a number with its unit, as people read it
provenance      the commit, the machine, its state and the command that made a record
errors          exit codes, and the errors that end a command with one of them and a single line
"""

from results.records.record import (
    FIDELITIES,
    ORIGINS,
    READINGS,
    SCHEMA,
    STATUSES,
    UNITS,
    VERDICTS,
    ClaimResult,
    ClusterRef,
    Host,
    Interval,
    Metric,
    Number,
    PaperPlace,
    PaperValue,
    PointResult,
    Provenance,
    Record,
    RecordedEvent,
    RecordedTimeline,
    read_record,
    write_record,
)
from results.records.storage import (
    StorageError,
    atomic_write_bytes,
    digest_file,
    digest_files,
    fingerprint,
    write_files,
)
from results.records.validation import RecordError

__all__ = [
    "FIDELITIES",
    "ORIGINS",
    "READINGS",
    "SCHEMA",
    "STATUSES",
    "UNITS",
    "VERDICTS",
    "ClaimResult",
    "ClusterRef",
    "Host",
    "Interval",
    "Metric",
    "Number",
    "PaperPlace",
    "PaperValue",
    "PointResult",
    "Provenance",
    "Record",
    "RecordError",
    "RecordedEvent",
    "RecordedTimeline",
    "StorageError",
    "atomic_write_bytes",
    "digest_file",
    "digest_files",
    "fingerprint",
    "read_record",
    "write_files",
    "write_record",
]
