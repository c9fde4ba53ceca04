"""One small file of a session on GPUs: its records, how its steps ended, and the predictions sealed before.

It is a zip archive of at most six files and 16 MB. Whoever imports it trusts nothing in it: names and sizes are bounded
before anything is unpacked, every record is checked against its schema, and no word in it becomes a path.
"""

import io
import json
import statistics
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.harness.benchmark_list import BENCHMARKS, CANARY, record_path
from ptdp_core.config import TrainingConfig
from ptdp_core.simulator import simulate
from ptdp_core.simulator.cluster import with_program
from reproduce.annex.bench import gpu_session
from reproduce.annex.bench.gpu_cases import CASES, GPUS_CASES
from reproduce.experiment import catalog
from reproduce.experiment.fidelity import FIDELITIES, folder_name
from reproduce.running import simulated
from results import ROOT, opening
from results.records import Metric, PointResult, Record, fingerprint, read_record, write_record
from results.records.errors import InvalidResultsError
from results.records.provenance import collect, scrub
from results.records.storage import atomic_write_bytes, json_lines
from results.records.validation import RecordError, parse

SEALED = ROOT / "results" / "reference" / "gpu" / "predictions.json"
SESSION, RECORDS, PREDICTIONS, LOGS, CLUSTER, TRACE = NAMES = (
    "session.json", "records.json", "predictions.json", "logs.txt", "gpu.toml", "trace.json.gz",
)  # fmt: skip
MOST = opening.ARCHIVE
LOG_CHARACTERS = 4000  # of each step's log, its end
CASE, TIME, MEMORY = "gpu_step", "time", "peak_memory"


@dataclass(frozen=True)
class Imported:
    """What an archive held: the steps' ends, its records by the files that hold them here, and remarks."""

    steps: Mapping[str, gpu_session.StepOutcome]
    records: Mapping[Path, Record]
    scores: list[dict[str, Any]]
    remarks: tuple[str, ...]


def seal(command: Iterable[str]) -> Record:
    """What the simulator predicts for all cases, by the engine's own program, on cluster h100."""
    cluster, reference = simulated.open_cluster("h100")
    cluster = replace(
        with_program(cluster, "ptdp"), allocator_efficiency=1.0
    )  # a GPU reports what is allocated, not what is held for it
    started, points = datetime.now(UTC), []
    for case in (*CASES, *GPUS_CASES):
        config = TrainingConfig(case.model, case.layout)
        software = ", ".join(name for name, on in vars(case.software).items() if on)
        parameters = {**config.to_plain(), **case.engine, "software": software}
        estimate = simulate(config, cluster, case.software)
        metrics = {
            TIME: Metric(estimate.iteration_time, "s", "simulated"),
            MEMORY: Metric(estimate.peak_memory, "B", "simulated"),
        }
        points.append(
            PointResult(case.name, "engine", case.name, parameters, "ok", None, fingerprint(parameters), metrics)
        )
    digest = gpu_session.sources()
    return Record(
        kind="benchmark", id=CASE, title="Training steps on GPUs, predicted before they are taken", paper=None,
        fidelity="simulated", scale="full", state="complete", points=tuple(points),
        provenance=collect(tuple(command), started, cluster=reference, code_digest=digest),
    )  # fmt: skip


def write(folder: Path, path: Path) -> None:
    """Make the archive of the session in `folder`; what makes it too large is left out, the trace first."""
    texts = {SESSION: (folder / SESSION).read_bytes(), PREDICTIONS: SEALED.read_bytes()}
    steps = list(json.loads(texts[SESSION])["steps"])
    found = [record for step in steps for record in gpu_session.records(folder / step.replace("/", "-"))]
    texts[RECORDS] = json_lines([read_record(file).to_json() for file in found], 1).encode()
    logs = {step: folder / f"{step.replace('/', '-')}.log" for step in steps}
    ends = {step: log.read_text("utf-8", "replace")[-LOG_CHARACTERS:] for step, log in logs.items() if log.exists()}
    texts[LOGS] = "\n".join(f"== {step}\n{scrub(end)}" for step, end in ends.items()).encode()
    for name, file in ((CLUSTER, folder / "calibrate" / CLUSTER), (TRACE, folder / "profile" / "rank0.json.gz")):
        if file.is_file():
            texts[name] = file.read_bytes()
    for left_out in (None, TRACE, LOGS):
        texts.pop(left_out or "", None)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in texts.items():
                archive.writestr(name, data)
        if len(packed.getvalue()) <= MOST:
            break
    atomic_write_bytes(path, packed.getvalue())


def read(path: Path, results: Path) -> Imported:
    """What is in an archive, with the places of its records below `results`. Raises `InvalidResultsError`."""
    try:
        files = opening.read_archive(path, NAMES)
        session = parse(files[SESSION], SESSION)
        steps = {str(name): gpu_session.StepOutcome(**row) for name, row in session["steps"].items()}
        for row in steps.values():
            if row.status not in gpu_session.STATUSES or not isinstance(row.said, str) or not float(row.seconds) >= 0:
                raise ValueError(f"{row} is no end of a step")
        found = [Record.from_json(document, RECORDS) for document in parse(files[RECORDS], RECORDS)]
        sealed = Record.from_json(parse(files[PREDICTIONS], PREDICTIONS), PREDICTIONS)
        records = {}
        for place, same in groupby(sorted(found, key=lambda r: _place(r, results)), lambda r: _place(r, results)):
            records[place] = _merged(list(same))
    except OSError as error:
        raise InvalidResultsError(f"cannot read {path}: {error.strerror}; needs what bench gpu leaves") from None
    except RecordError as error:
        raise InvalidResultsError(f"{path}: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidResultsError(f"{path}: {error!r} in it; needs an archive of reproduce bench gpu") from None
    remarks = []
    if session.get("sources") != gpu_session.sources():
        commit = next((record.provenance.commit for record in found if record.provenance.commit), None)
        remarks.append(f"of other sources than these: of commit {commit or 'unknown, as git was not there'}")
    if files[PREDICTIONS] != SEALED.read_bytes():
        remarks.append("its predictions are not those sealed here; scored with its own")
    return Imported(steps, records, scores(records.get(record_path(results, CASE)), sealed), tuple(remarks))


def save(imported: Imported) -> None:
    """Write the records to their places."""
    for path, record in imported.records.items():
        write_record(record, path)


def scores(measured: Record | None, sealed: Record) -> list[dict[str, Any]]:
    """A row for each case that was measured: its seconds, MFU, what was predicted over it, a peer's time over ours.

    The peer's quartiles are those of pairs of steps in turns; None where the two ran one after the other.
    """
    rows = []
    predicted = {point.key: point.metrics for point in sealed.points}
    for point in measured.points if measured else ():
        time = point.metrics.get(TIME)
        if point.status == "ok" and time and time.value and point.series != CANARY:
            name = point.label if point.series == "engine" else point.key
            ours = predicted.get(name, {}).get(TIME)
            mfu, memory, peer = (point.metrics.get(metric) for metric in ("mfu", MEMORY, "ratio"))
            said = predicted.get(name, {}).get(MEMORY)
            rows.append({
                "case": name, "measured_s": time.value, "mfu": mfu.value if mfu else None,
                "predicted_s": ours and ours.value, "ratio": ours and ours.value and ours.value / time.value,
                "memory_ratio": said and memory and said.value and memory.value and said.value / memory.value,
                "peer_over_engine": peer and peer.value,
                "peer_quartiles": gpu_session.quartiles(peer) if peer else None,
            })  # fmt: skip
    return rows


def score_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The rows as a table, and the mean error."""
    rows = list(rows)
    if not rows:
        return ["no training step of full size was measured: there is nothing to score"]
    width = max(17, *(len(row["case"]) for row in rows))
    lines = [
        f"{'a step [measured]':{width}}{'seconds':>8}{'MFU':>7}{'predicted':>10}{'over':>6}{'memory':>7}{'peer':>6}"
        "  in pairs"
    ]
    for row in rows:
        mfu = f"{row['mfu']:.1%}" if row["mfu"] else ""
        ours = f"{row['predicted_s']:10.3f}{row['ratio'] - 1:+6.0%}" if row["ratio"] else f"{'':16}"
        memory = f"{row['memory_ratio'] - 1:+7.0%}" if row["memory_ratio"] else f"{'':7}"
        peer = f"{row['peer_over_engine']:6.2f}" if row["peer_over_engine"] else ""
        if peer:
            spread = row["peer_quartiles"]
            peer += f"  {gpu_session.in_pairs(spread) if spread else 'not in pairs'}"
        lines.append(f"{row['case']:{width}}{row['measured_s']:8.3f}{mfu:>7}{ours}{memory}{peer}".rstrip())
    if any(row["peer_over_engine"] for row in rows):
        lines.append("peer: its time over ours")
    for what, key in (("seconds", "ratio"), ("memory", "memory_ratio")):
        if errors := [abs(row[key] - 1) for row in rows if row[key]]:
            lines.append(f"mean error of {len(errors)} predictions of {what}: {statistics.mean(errors):.1%}")
    return lines


def _place(record: Record, results: Path) -> Path:
    """The file of a record, by ids and names that there are here: no word of an archive is a path."""
    if record.kind == "benchmark" and record.id in BENCHMARKS and record.fidelity == "measured":
        return record_path(results if record.scale == "full" else results / "quick", record.id)
    if record.id in catalog.ids() and record.scale in FIDELITIES[record.fidelity].scales:
        return results / record.id / folder_name(record.fidelity, record.scale) / "record.json"
    raise ValueError(f"a record of {record.id!r}, {record.fidelity}, at scale {record.scale!r}, which is none here")


def _merged(records: list[Record]) -> Record:
    """Records of one benchmark as one: the points of all, of each key the latest, without canaries of several."""
    if len(records) == 1:
        return records[0]
    points = {point.key: point for record in records for point in record.points if point.series != CANARY}
    notes = dict.fromkeys(note for record in records for note in record.notes)
    return replace(records[-1], points=tuple(points.values()), notes=tuple(notes))
