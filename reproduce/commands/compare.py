"""What `reproduce compare` prints: per experiment whether it can be compared, and a table of what differs."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.records.documents import print_document
from benchmarks.records.errors import INVALID_RESULTS
from benchmarks.records.units import with_unit
from reproduce.analysis.compare import Comparison, Difference, Key, Pair, compare, load, name
from reproduce.commands.options import add_json, path_of

ROWS = 20  # values shown of an experiment
LINES = 4  # of everything else
DIGITS = 5  # of values

HELP = """A and B are results folders, or record.json files: of artifacts, benchmarks, anything the suite writes.

Simulated and derived results compare across machines. Measured and emulated ones need the same class of host
(processor, cores, GPUs), all of them the same scale, cluster file and specification of each point; where that is not so
the exit code is 8, and the other experiments are still compared. Differences are no failure: the exit code is 0.

examples:
  reproduce compare results/reference results/runs
  reproduce compare before/fig_interleaved/simulated/record.json after --json

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce compare`."""
    parser.add_argument("a", type=path_of, metavar="A", help="a results folder or a record.json")
    parser.add_argument("b", type=path_of, metavar="B", help="another")
    add_json(parser)


def run(parsed: Namespace) -> int:
    """Compare, print, and return the exit code. Raises `ReproduceError` for what is no result."""
    a, b = parsed.a, parsed.b
    comparison = compare(load(a), load(b))
    if parsed.json:
        print_document("compare", 1, _document(comparison, a, b))
    else:
        _print(comparison, a, b)
    return comparison.code


def _document(comparison: Comparison, a: Path, b: Path) -> dict[str, Any]:
    return {
        "exit_code": comparison.code,
        "a": str(a),
        "b": str(b),
        "pairs": [_pair_document(pair) for pair in comparison.pairs],
        "only_in_a": [_key_document(key) for key in comparison.only_a],
        "only_in_b": [_key_document(key) for key in comparison.only_b],
    }


def _key_document(key: Key) -> dict[str, str]:
    return dict(zip(("kind", "id", "fidelity", "scale"), key, strict=True))


def _pair_document(pair: Pair) -> dict[str, Any]:
    return _key_document(pair.key) | {
        "comparable": not pair.obstacles,
        "obstacles": list(pair.obstacles),
        "points": pair.points,
        "values": pair.values,
        "differences": [
            {
                "point": difference.point,
                "metric": difference.metric,
                "a": difference.a,
                "b": difference.b,
                "relative": difference.relative,
                "unit": difference.unit,
                "origin": difference.origin,
                "samples_apart": difference.apart,
            }
            for difference in pair.differences
        ],
        "changes": [{"what": what, "a": a, "b": b} for what, a, b in pair.changes],
        "only_in_a": [what for side, what in pair.missing if side == "A"],
        "only_in_b": [what for side, what in pair.missing if side == "B"],
        "notes": list(pair.notes),
    }


def _print(found: Comparison, a: Path, b: Path) -> None:
    same = [pair for pair in found.pairs if _is_same(pair)]
    blocks = [[f"A: {a}", f"B: {b}"], *(_lines(pair) for pair in found.pairs if pair not in same)]
    rest = []
    if same:
        values = sum(pair.values for pair in same)
        rest.append(f"the same: {_listed([name(pair.key) for pair in same])}: all of {values} values")
    for side, keys in (("A", found.only_a), ("B", found.only_b)):
        if keys:
            rest.append(f"only in {side}: {_listed([name(key) for key in keys])}")
    incomparable = sum(bool(pair.obstacles) for pair in found.pairs)
    counts = [f"{len(same)} the same", f"{len(found.pairs) - len(same) - incomparable} differ"]
    if incomparable:
        counts.append(f"{incomparable} cannot be compared (exit code {INVALID_RESULTS})")
    experiments = "1 experiment" if len(found.pairs) == 1 else f"{len(found.pairs)} experiments"
    blocks.append([*rest, f"{experiments} in both: {', '.join(counts)}"])
    print("\n\n".join("\n".join(block) for block in blocks))


def _is_same(pair: Pair) -> bool:
    return not (pair.obstacles or pair.differences or pair.changes or pair.missing)


def _lines(pair: Pair) -> list[str]:
    if pair.obstacles:
        return [f"{name(pair.key)}: cannot be compared", *_some(pair.obstacles)]
    head = f"{len(pair.differences)} of {pair.values} values differ, {pair.points} points in both"
    lines = [f"{name(pair.key)}: {head}", *_table(pair.differences)]
    lines += _some([f"{what}: {a} -> {b}" for what, a, b in pair.changes])
    lines += _some([f"only in {side}: {what}" for side, what in pair.missing])
    return lines + _some(pair.notes)


def _some(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - LINES
    return [f"  {text}" for text in texts[:LINES]] + ([f"  and {rest} more (--json has all)"] if rest > 0 else [])


def _listed(names: list[str]) -> str:
    return ", ".join(names[:LINES]) + (f" and {len(names) - LINES} more" if len(names) > LINES else "")


def _table(differences: Sequence[Difference]) -> list[str]:
    """A row per metric, with the point where it differs most."""
    by_metric: dict[str, list[Difference]] = {}
    for difference in differences:
        by_metric.setdefault(difference.metric, []).append(difference)
    rows: list[tuple[str, ...]] = [("value", "points", "most at", "A", "B", "B against A", "samples")]
    rows += sorted((_row(of_metric) for of_metric in by_metric.values()), key=lambda row: -int(row[1]))[:ROWS]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    lines = []
    for i in range(len(rows) if differences else 0):
        cells = [
            column[i].ljust(w) if column[i] in rows[i][:3] else column[i].rjust(w)
            for column, w in zip(columns, widths, strict=True)
        ]
        lines.append(f"  {'  '.join(cells)}".rstrip())
    rest = len(by_metric) - ROWS
    return lines + ([f"  and {rest} more (--json has all)"] if rest > 0 else [])


def _row(differences: Sequence[Difference]) -> tuple[str, ...]:
    most = max(
        differences, key=lambda difference: float("inf") if difference.relative is None else abs(difference.relative)
    )
    relative = "from 0" if most.relative is None else f"{100 * most.relative:+.3g}%"
    sampled = [difference.apart for difference in differences if difference.apart is not None]
    samples = f"{sum(sampled)} of {len(sampled)} apart" if sampled else ""
    value = f"{most.metric.replace('_', ' ')} [{most.origin}]"
    a, b = (with_unit(number, most.unit, DIGITS) for number in (most.a, most.b))
    return value, str(len(differences)), most.point, a, b, relative, samples
