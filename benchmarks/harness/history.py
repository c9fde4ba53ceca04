"""Keeps every record of a benchmark, by class of machine and commit, beside the latest one.

DIR/benchmarks/NAME/record.json                            the latest, which the next run overwrites
DIR/benchmarks/NAME/history/MACHINE/STARTED-COMMIT.json    all of them
"""

import re
from pathlib import Path

from benchmarks.harness.runner import record_path
from results.records import Host, Record, read_record, write_record


def folder(results: Path, name: str) -> Path:
    """Where the records of a benchmark are kept."""
    return record_path(results, name).parent / "history"


def machine(host: Host) -> str:
    """The class of a machine in one word, such as amd-epyc-7763-64-cores or amd-epyc-7763-64-cores-2-h100."""
    gpus = f"{host.gpu_count} {' '.join(host.gpus)}" if host.gpu_count else ""
    text = f"{host.cpu or host.machine} {host.logical_cores or 'unknown'} cores {gpus}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def keep(record: Record, results: Path) -> Path:
    """Write a record to the history, and return its path. Raises `StorageError` or `RecordError`."""
    made_by = record.provenance
    commit = (made_by.commit or "unknown")[:10] + ("-changed" if made_by.dirty else "")
    name = f"{re.sub(r'[^0-9TZ]', '', made_by.started)}-{commit}.json"
    path = folder(results, record.id) / machine(made_by.host) / name
    write_record(record, path)
    return path


def kept(results: Path, name: str, scale: str) -> dict[str, list[Record]]:
    """The records of a benchmark at a scale, by class of machine, the oldest first.

    Raises `InvalidResultsError` for a file that is no record.
    """
    records = [read_record(path) for path in sorted(folder(results, name).glob("*/*.json"))]
    by_machine: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.provenance.started):
        if record.scale == scale:
            by_machine.setdefault(machine(record.provenance.host), []).append(record)
    return by_machine
