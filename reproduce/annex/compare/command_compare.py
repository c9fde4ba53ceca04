"""`reproduce compare`: per experiment whether it can be compared, a table of what differs, and whether that may be."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from reproduce.annex.compare.compare import Comparison, Key, Pair, ValueDifference, compare, load
from reproduce.commands.options import add, path_of
from results.records.documents import print_document
from results.records.errors import DONE, INVALID_RESULTS, REGRESSED, UsageError
from results.records.units import with_unit

ROWS = 20  # values shown of an experiment
LINES = 4  # of everything else
DIGITS = 5  # of values
LETTERS = "BCDEFGHIJ"  # of the sets that A is compared with

HELP = """A and B are results folders, or record.json files: of artifacts, benchmarks, anything the suite writes. Each
further set is compared with A, too, and a table shows all of them side by side.

Simulated and derived results compare across machines. Measured and emulated ones need the same class of host
(processor, cores, GPUs), all of them the same scale, cluster file and specification of each point; where that is not so
the exit code is 8, and the other experiments are still compared. --across-hosts shows numbers of different hosts beside
both environments, and passes no verdict on them.

Differences are no failure: the exit code is 0. --fail-on 5% makes it 6 if a value differs by more, in any direction; if
samples were taken, only where none of A's lies among B's. So do points and values that only A has, and points that are
no longer ok. --fail-on-claims makes it 6 if a claim's verdict is worse in B, or missing.

examples:
  reproduce compare results/reference results/runs
  reproduce compare results/reference results/runs --fail-on 1% --fail-on-claims
  reproduce compare here there elsewhere --across-hosts
  reproduce compare before/fig_interleaved/simulated/record.json after --json

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce compare`."""
    parser.add_argument("a", type=path_of, metavar="A", help="a results folder or a record.json")
    parser.add_argument("b", type=path_of, metavar="B", help="another")
    parser.add_argument("others", type=path_of, metavar="C", nargs="*", help="more of them")
    parser.add_argument(
        "--fail-on",
        type=_share,
        metavar="SHARE",
        help="such as 5%%: exit with 6 if a value differs by more, or is missing",
    )
    parser.add_argument("--fail-on-claims", action="store_true", help="exit with 6 if a verdict is worse, or missing")
    parser.add_argument(
        "--across-hosts", action="store_true", help="times of other machines, too: numbers and environments, no verdict"
    )
    add(parser, "json")


def _share(text: str) -> float:
    """0.05 of '5%'. Raises `ArgumentTypeError`."""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 <= share < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no share; needs a percentage of 0% or more; try --fail-on 5%")
    return share


def run(parsed: Namespace) -> int:
    """Compare, print, and return the exit code. Raises `ReproduceError` for what is no result."""
    first, paths = load(parsed.a), [parsed.b, *parsed.others]
    if len(paths) > len(LETTERS):
        raise UsageError(f"{len(paths) + 1} sets are too many for a table; needs at most {len(LETTERS) + 1}")
    comparisons = [compare(first, load(path), parsed.across_hosts) for path in paths]
    failures = [comparison.failures(parsed.fail_on, parsed.fail_on_claims) for comparison in comparisons]
    sets = list(zip(comparisons, paths, failures, strict=True))
    code = INVALID_RESULTS if any(pair.obstacles for each in comparisons for pair in each.pairs) else DONE
    if any(failures):
        code = REGRESSED
    if parsed.json:
        against, *more = [_document(parsed.a, path, comparison, failed) for comparison, path, failed in sets]
        print_document("compare", 1, {"exit_code": code, **against, **({"others": more} if more else {})})
        return code
    for letter, (comparison, path, failed) in zip(LETTERS, sets, strict=False):
        if letter != LETTERS[0]:
            print()
        _print(comparison, parsed.a, path, letter)
        if failed:
            print(f"\nfails (exit code {REGRESSED}):", *_some(failed), sep="\n")
    if parsed.others:
        print("\n" + "\n".join(_side_by_side(comparisons)))
    return code


def _document(a: Path, b: Path, comparison: Comparison, failures: Sequence[str]) -> dict[str, Any]:
    return {
        "a": str(a),
        "b": str(b),
        "failures": failures,
        "pairs": [_pair_document(pair) for pair in comparison.pairs],
        "only_in_a": [key._asdict() for key in comparison.only_in_a],
        "only_in_b": [key._asdict() for key in comparison.only_in_b],
    }


def _pair_document(pair: Pair) -> dict[str, Any]:
    document = asdict(pair)
    del document["key"]
    return pair.key._asdict() | {"comparable": not pair.obstacles} | document


def _print(comparison: Comparison, a: Path, b: Path, letter: str) -> None:
    """The comparison of A with one other set; of several, `letter` is what the table of all calls the other."""
    same = [pair for pair in comparison.pairs if pair.same]
    title = f"B: {b}" if letter == LETTERS[0] else f"B: {b} ({letter} in the table of all)"
    blocks = [[f"A: {a}", title], *(_lines(pair) for pair in comparison.pairs if pair not in same)]
    rest = []
    if same:
        values = sum(pair.values for pair in same)
        rest.append(f"the same: {_listed([pair.key for pair in same])}: all of {values} values")
    for side, keys in (("A", comparison.only_in_a), ("B", comparison.only_in_b)):
        if keys:
            rest.append(f"only in {side}: {_listed(keys)}")
    incomparable = sum(bool(pair.obstacles) for pair in comparison.pairs)
    counts = [f"{len(same)} the same", f"{len(comparison.pairs) - len(same) - incomparable} differ"]
    if incomparable:
        counts.append(f"{incomparable} cannot be compared (exit code {INVALID_RESULTS})")
    experiments = "1 experiment" if len(comparison.pairs) == 1 else f"{len(comparison.pairs)} experiments"
    blocks.append([*rest, f"{experiments} in both: {', '.join(counts)}"])
    print("\n\n".join("\n".join(block) for block in blocks))


def _lines(pair: Pair) -> list[str]:
    if pair.obstacles:
        return [f"{pair.key}: cannot be compared", *_some(pair.obstacles)]
    head = f"{len(pair.differences)} of {pair.values} values differ, {pair.points} points in both"
    lines = [f"{pair.key}: {head}", *_table(pair.differences)]
    if pair.environments:
        lines[0] += "; the machines differ, so this is no verdict"
        lines += [f"  {side}: {environment}" for side, environment in zip("AB", pair.environments, strict=True)]
    lines += _some(list(map(str, pair.changes)))
    missing = [(side, what) for side, names in (("A", pair.only_in_a), ("B", pair.only_in_b)) for what in names]
    lines += _some([f"only in {side}: {what}" for side, what in missing])
    return lines + _some(pair.notes)


def _some(texts: Sequence[str]) -> list[str]:
    rest = len(texts) - LINES
    return [f"  {text}" for text in texts[:LINES]] + ([f"  and {rest} more (--json has all)"] if rest > 0 else [])


def _listed(keys: Sequence[Key]) -> str:
    return ", ".join(map(str, keys[:LINES])) + (f" and {len(keys) - LINES} more" if len(keys) > LINES else "")


def _table(differences: Sequence[ValueDifference]) -> list[str]:
    """A row per metric, with the point where it differs most."""
    by_metric: dict[str, list[ValueDifference]] = {}
    for difference in differences:
        by_metric.setdefault(difference.metric, []).append(difference)
    rows = sorted(map(_row, by_metric.values()), key=lambda row: -int(row[1]))
    return [f"  {line}" for line in _aligned(("value", "points", "most at", "A", "B", "B against A", "samples"), rows)]


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The first rows as the lines of a table, and how many more there are."""
    from tabulate import tabulate

    lines = tabulate(rows[:ROWS], headings, tablefmt="plain", disable_numparse=True).splitlines() if rows else []
    rest = len(rows) - ROWS
    return [*map(str.rstrip, lines), *([f"and {rest} more (--json has all)"] if rest > 0 else [])]


def _side_by_side(comparisons: Sequence[Comparison]) -> list[str]:
    """A row for each metric that differs anywhere, at the point where it differs most, with a column for each set."""
    columns = [
        {(pair.key, d.metric, d.point): d for pair in comparison.pairs for d in pair.differences}
        for comparison in comparisons
    ]
    most: dict[tuple[Key, str], ValueDifference] = {}
    for column in columns:
        for (key, metric, _), difference in column.items():
            most[key, metric] = max(most.get((key, metric), difference), difference, key=attrgetter("size"))
    rows = [
        (
            *(str(key), f"{metric.replace('_', ' ')} [{difference.origin}]", difference.point),
            with_unit(difference.a, difference.unit, DIGITS),
            *(_cell(column.get((key, metric, difference.point))) for column in columns),
        )
        for (key, metric), difference in most.items()
    ]
    headings = ("experiment", "value", "at", "A", *LETTERS[: len(comparisons)])
    return ["all, where they differ most:", *_aligned(headings, rows)] if rows else ["all: no value differs"]


def _cell(difference: ValueDifference | None) -> str:
    """A set's value at a point; that of A if it does not differ there, or if the set has none."""
    if difference is None:
        return "as A, or none"
    share = "" if difference.relative is None else f" ({100 * difference.relative:+.3g}%)"
    return with_unit(difference.b, difference.unit, DIGITS) + share


def _row(differences: Sequence[ValueDifference]) -> tuple[str, ...]:
    most = max(differences, key=attrgetter("size"))
    relative = "from 0" if most.relative is None else f"{100 * most.relative:+.3g}%"
    sampled = [difference.samples_apart for difference in differences if difference.samples_apart is not None]
    samples = f"{sum(sampled)} of {len(sampled)} apart" if sampled else "-"
    value = f"{most.metric.replace('_', ' ')} [{most.origin}]"
    a, b = (with_unit(number, most.unit, DIGITS) for number in (most.a, most.b))
    return value, str(len(differences)), most.point, a, b, relative, samples
