"""A check's result as Markdown for people and CI, as JSON, and as a record."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from benchmarks.gate.launcher import WORKLOAD
from benchmarks.gate.procedure import IMPROVED, INCONCLUSIVE, OK, REGRESSED, ConfidenceInterval
from benchmarks.gate.run import NOT_COMPARED, CheckResult
from benchmarks.gate.session import ROUNDS, Finding
from benchmarks.gate.trees import BASE, HEAD
from results.records import Metric, PointResult, Provenance, Record, provenance
from results.records.storage import digest_files, fingerprint

ID = "check"
HEADLINES = {
    REGRESSED: "{head} is slower than {base}",
    OK: "{head} is not slower than {base}: a slow-down of 10% or more is ruled out",
    IMPROVED: "{head} is faster than {base}",
    INCONCLUSIVE: "whether {head} is slower than {base} could not be told",
    NOT_COMPARED: "{base} can run none of the benchmarks that {head} has been asked for",
}
COLUMNS = ("benchmark", "verdict", "slow-down", "99% interval", "base", "head", "pairs")
MEANINGS = (
    "regressed: a slow-down of 3% or less is ruled out; ok: one of 10% or more is; improved: faster by more than 3%; "
    "each wrong with a probability of at most 0.5% for all benchmarks together"
)


def headline(result: CheckResult) -> str:
    """The verdict in one sentence, in Markdown."""
    base, head = (f"{side} `{tree.ref}` ({tree.commit[:10]})" for side, tree in _sides(result))
    if not result.measured:
        return f"**nothing measured** of {head} against {base}"
    return f"**{result.verdict}**: {HEADLINES[result.verdict].format(head=head, base=base)}"


def body(result: CheckResult) -> str:
    """The table of the findings and how the session went, in Markdown that also reads well on a terminal."""
    rows = [COLUMNS, *(_row(finding) for finding in result.findings)]
    lines = [*table(rows), ""]
    lines += [f"{finding.name}: {finding.reason}" for finding in result.findings if finding.reason]
    lines += [f"{name}: {NOT_COMPARED}: {why}" for name, why in result.lacking.items()]
    if result.session:
        lines += [
            f"{result.session.pairs} pairs of {ROUNDS} processes a side, {result.session.redone} of "
            f"{result.session.rounds} rounds redone, "
            f"{result.session.seconds:.0f} s of {result.budget_s:.0f} s, seed {result.seed}; times are measured here, "
            "medians, and the slow-down is that of neighbouring measurements",
        ]
    return "\n".join([*lines, MEANINGS])


def document(result: CheckResult) -> dict[str, Any]:
    """The result as JSON, with times in seconds, one for each round, and slow-downs as ratios minus one."""
    session = result.session
    return {
        "verdict": result.verdict if result.measured else None,
        **{side: {"ref": tree.ref, "commit": tree.commit} for side, tree in _sides(result)},
        "seed": result.seed,
        "budget_s": result.budget_s,
        "seconds": session.seconds if session else None,
        "pairs": session.pairs if session else 0,
        "rounds": session.rounds if session else 0,
        "redone": session.redone if session else 0,
        "workload": _workload(),
        "benchmarks": [_entry(finding) for finding in result.findings],
        "not_measured": result.lacking,
    }


def record(result: CheckResult, command: Sequence[str], started: datetime) -> Record:
    """The result as a record of kind 'comparison': a point for each benchmark, with its verdict as the series."""
    points = [_point(result, finding) for finding in result.findings]
    for name, why in result.lacking.items():
        points.append(PointResult(name, NOT_COMPARED, name, {}, "skipped", why, _fingerprint(result, name)))
    sides = [f"{side}: {tree.ref}, commit {tree.commit}" for side, tree in _sides(result)]
    notes = [provenance.scrub(line) for line in (*sides, *body(result).splitlines()[2:]) if line]
    seconds = result.session.seconds if result.session else 0.0
    where = provenance.collect(command, started, seconds, result.seed, packages=("torch",))
    return comparison(ID, "Paired timing of head against base", where, points, notes)


def comparison(id: str, title: str, where: Provenance, points: Sequence[PointResult], notes: Sequence[str]) -> Record:
    """A record of kind 'comparison' of measurements on this machine."""
    return Record(
        kind="comparison",
        id=id,
        title=title,
        paper=None,
        fidelity="measured",
        scale="laptop",
        state="complete",
        provenance=where,
        points=tuple(points),
        notes=tuple(notes),
    )


def slowdown_metrics(finding: Finding) -> dict[str, Metric]:
    """The slow-down of a finding that has rounds, and those bounds of its interval that are finite."""
    metrics = {"slowdown": Metric(finding.slowdown, "1", "measured", finding.slowdowns)}
    for which in ("lower", "upper"):
        if (bound := _bound(finding.interval, which)) is not None:
            metrics[f"slowdown_{which}"] = Metric(bound, "1", "derived")
    return metrics


def _workload() -> str:
    """The digest of what decides how both sides are measured."""
    return digest_files([WORKLOAD])


def _sides(result: CheckResult) -> list[tuple[str, Any]]:
    return [(side, result.trees[side]) for side in (BASE, HEAD)]


def _row(finding: Finding) -> tuple[str, ...]:
    """The row of a finding, a cell for each of `COLUMNS`."""
    if not finding.rounds:
        return (finding.name, finding.verdict, "", "", "", "", "0")
    interval = finding.interval
    return (
        finding.name,
        finding.verdict,
        f"{finding.slowdown:+.1%}",
        f"{interval.lower:+.1%} to {interval.upper:+.1%}" if interval else "no look yet",
        _milliseconds(finding.base_s),
        _milliseconds(finding.head_s),
        str(len(finding.rounds) // ROUNDS),
    )


def _milliseconds(seconds: Sequence[float]) -> str:
    """The median, to three digits where it is short."""
    median = float(np.median(seconds)) * 1e3
    return f"{median:.2f} ms" if median >= 1 else f"{median:.3g} ms"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table with these rows, the first of which is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]


def _entry(finding: Finding) -> dict[str, Any]:
    interval = finding.interval
    return {
        "name": finding.name,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "slowdown": interval.estimate if interval else None,
        "lower": _bound(interval, "lower"),
        "upper": _bound(interval, "upper"),
        "pairs": len(finding.rounds) // ROUNDS,
        "base_s": list(finding.base_s),
        "head_s": list(finding.head_s),
        "slowdowns": list(finding.slowdowns),
    }


def _bound(interval: ConfidenceInterval | None, which: str) -> float | None:
    """The lower or upper bound of an interval; None where it is infinite, as JSON has no infinity."""
    value = getattr(interval, which) if interval else math.inf
    return value if math.isfinite(value) and value > -1 else None


def _point(result: CheckResult, finding: Finding) -> PointResult:
    name, verdict = finding.name, finding.verdict
    label, digest = f"{name}: {verdict}", _fingerprint(result, name)
    if not finding.rounds:
        return PointResult(name, verdict, label, {}, "skipped", finding.reason, digest)
    metrics = slowdown_metrics(finding) | {
        "base_time": Metric(float(np.median(finding.base_s)), "s", "measured", finding.base_s),
        "head_time": Metric(float(np.median(finding.head_s)), "s", "measured", finding.head_s),
    }
    return PointResult(name, verdict, label, {}, "ok", None, digest, metrics)


def _fingerprint(result: CheckResult, name: str) -> str:
    """The digest of what a benchmark's times depend on: its name, the workloads and both commits."""
    commits = {side: tree.commit for side, tree in _sides(result)}
    return fingerprint({"benchmark": name, "workload": _workload(), **commits})
