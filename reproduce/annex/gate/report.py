"""A check's result as Markdown for people and CI, as JSON, and as a record."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from reproduce.annex.gate.launcher import WORKLOAD
from reproduce.annex.gate.procedure import IMPROVED, INCONCLUSIVE, OK, REGRESSED
from reproduce.annex.gate.run import NOT_COMPARED, CheckResult
from reproduce.annex.gate.session import ROUNDS, Finding
from reproduce.annex.gate.trees import HEAD
from results.records import Metric, PointResult, Provenance, Record, errors, provenance
from results.records.storage import digest_files, fingerprint
from results.records.units import with_unit

ID = "check"
HEADLINES = {
    REGRESSED: "{head} is slower than {base}",
    OK: "{head} is not slower than {base}: a slow-down of 10% or more is ruled out",
    IMPROVED: "{head} is faster than {base}",
    INCONCLUSIVE: "whether {head} is slower than {base} could not be told",
    NOT_COMPARED: "{base} can run none of the benchmarks that {head} has been asked for",
}
COLUMNS = ("verdict", "slower", "99% interval", "base to head", "benchmark")  # a name may be as long as a line
MEANINGS = (
    "regressed: a slow-down of 3% or less is ruled out; ok: one of 10% or more is; improved: faster by more than 3%; "
    "each wrong with a probability of at most 0.5% for all benchmarks together"
)


def text(result: CheckResult) -> str:
    """The verdict, the times and what is exact, in Markdown that also reads well on a terminal."""
    base, head = (f"{side} `{tree.ref}` ({tree.commit[:10]})" for side, tree in result.trees.items())
    headline = f"**{result.verdict}**: {HEADLINES[result.verdict].format(head=head, base=base)}"
    if result.exact.failed:
        headline = f"**{result.verdict}**: {result.trees[HEAD]} {result.exact.headline}"
    elif not result.timed:
        headline = f"**{result.verdict}**: {head} allocates no more than {base}"
    elif not result.told:
        headline = f"**nothing measured** of {head} against {base}"
    return "\n\n".join(filter(None, [headline, _times(result), result.exact.text]))


def _times(result: CheckResult) -> str:
    """The table of the findings and how the session went; '' if no times were to be taken."""
    if not result.timed:
        return ""
    session = result.session
    lines = [table(COLUMNS, [_row(finding) for finding in session.findings]), ""]
    lines += [f"{finding.name}: {finding.reason}" for finding in session.findings if finding.reason]
    lines += [f"{name}: {NOT_COMPARED}: {why}" for name, why in result.lacking.items()]
    if session.findings:
        shared = len({tree.python for tree in result.trees.values()}) == 1
        lines += [
            f"{'both sides in the environment of the gate' if shared else 'each side in an environment of its own'}, "
            f"{session.pairs} pairs of {ROUNDS} processes a side, {session.redone} of {session.rounds} rounds redone, "
            f"{session.seconds:.0f} s of {result.budget_s:.0f} s, seed {result.seed}; times are measured here, "
            "medians, and the slow-down is that of neighbouring measurements"
        ]
    return "\n".join([*lines, MEANINGS])


def _row(finding: Finding) -> tuple[str, ...]:
    """The row of a finding, a cell for each of `COLUMNS`."""
    if not finding.rounds:
        return (finding.verdict, "", "", "", finding.name)
    bounds = finding.interval
    interval = f"{bounds.lower:+.1%} to {bounds.upper:+.1%}" if bounds else "no look yet"
    times = " to ".join(with_unit(float(np.median(seconds)), "s", 3) for seconds in finding.seconds.values())
    return (finding.verdict, f"{finding.slowdown:+.1%}", interval, times, finding.name)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    from tabulate import tabulate

    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return str(tabulate(cells, columns, tablefmt="github", disable_numparse=True))


def document(result: CheckResult) -> dict[str, Any]:
    """The result as JSON, with times in seconds, one for each round, and slow-downs as ratios minus one."""
    exact, session = result.exact, result.session
    return {
        "verdict": result.verdict if result.told else None,
        "exit_code": result.code,
        **{side: {"ref": tree.ref, "commit": tree.commit} for side, tree in result.trees.items()},
        "exact": {
            "exit_code": errors.REGRESSED if exact.failed else errors.DONE,
            "status": exact.status,
            "text": exact.text,
            "changes": {name: [change._asdict() for change in changes] for name, changes in exact.changes.items()},
        },
        "seed": result.seed,
        "budget_s": result.budget_s,
        "seconds": session.seconds if session.findings else None,
        "pairs": session.pairs,
        "rounds": session.rounds,
        "redone": session.redone,
        "workload": digest_files([WORKLOAD]),
        "benchmarks": [_entry(finding) for finding in session.findings],
        "not_measured": dict(result.lacking),
    }


def _entry(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "slowdown": finding.slowdown if finding.rounds else None,
        **_bounds(finding),
        "pairs": finding.pairs,
        **{f"{side}_s": list(seconds) for side, seconds in finding.seconds.items()},
        "slowdowns": list(finding.slowdowns),
    }


def _bounds(finding: Finding) -> dict[str, float | None]:
    """The bounds of a finding's interval; None for one that is infinite, as JSON has no infinity."""
    bounds = finding.interval
    return {
        "lower": bounds.lower if bounds and bounds.lower > -1 else None,
        "upper": bounds.upper if bounds and math.isfinite(bounds.upper) else None,
    }


def record(result: CheckResult, command: Sequence[str], started: datetime) -> Record:
    """The result as a record of kind 'comparison': a point for each benchmark, with its verdict as the series."""
    points = [_point(result, each.name, each.verdict, each.reason, metrics(each)) for each in result.session.findings]
    points += [_point(result, name, NOT_COMPARED, why, {}) for name, why in result.lacking.items()]
    sides = [f"{side}: {tree.ref}, commit {tree.commit}" for side, tree in result.trees.items()]
    _, _, *lines = _times(result).splitlines()  # without the table's heading
    notes = [provenance.scrub(line) for line in (*sides, *lines) if line]
    where = provenance.collect(command, started, result.session.seconds, result.seed, packages=("torch",))
    return comparison(ID, "Paired timing of head against base", where, points, notes)


def comparison(id: str, title: str, where: Provenance, points: Sequence[PointResult], notes: Sequence[str]) -> Record:
    """A record of kind 'comparison' of measurements on this machine."""
    known: dict[str, Any] = {"kind": "comparison", "paper": None, "fidelity": "measured", "scale": "laptop"}
    points, notes = tuple(points), tuple(notes)
    return Record(id=id, title=title, state="complete", provenance=where, points=points, notes=notes, **known)


def metrics(finding: Finding) -> dict[str, Metric]:
    """The times of a finding that has rounds, its slow-down, and those bounds of its interval that are finite."""
    if not finding.rounds:
        return {}
    found = {"slowdown": Metric(finding.slowdown, "1", "measured", finding.slowdowns)}
    for side, seconds in finding.seconds.items():
        found[f"{side}_time"] = Metric(float(np.median(seconds)), "s", "measured", seconds)
    for which, bound in _bounds(finding).items():
        if bound is not None:
            found[f"slowdown_{which}"] = Metric(bound, "1", "derived")
    return found


def _point(result: CheckResult, name: str, verdict: str, reason: str | None, found: dict[str, Metric]) -> PointResult:
    """A benchmark's point. Its times depend on its name, on what measures it and on both commits."""
    commits = {side: tree.commit for side, tree in result.trees.items()}
    digest = fingerprint({"benchmark": name, "workload": digest_files([WORKLOAD]), **commits})
    status, why = ("ok", None) if found else ("skipped", reason)
    return PointResult(name, verdict, f"{name}: {verdict}", {}, status, why, digest, found)
