"""Puts differences into words: a headline that names what changed, and the first few values, old -> new."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from reproduce.annex.exact.differences import MOVED, Change, Difference
from reproduce.annex.exact.entries import KINDS, NEW_OR_GONE, PROBLEM, Scalar
from reproduce.annex.exact.functions import QUANTITIES, by_entry, calls, counted, grouped, in_entries, moved_work, span

# The quantities of kind `order`, the most readable one first: a headline quotes the first of them that changed.
_ORDER = ("table", "executed", "blocking program", "overlapped program", PROBLEM, "digest of the table")
EXAMPLES = 3  # how many entries of a quantity are shown
TEXT = 60  # how many characters of a text are shown

PARAMETERS = {"simulated": "cluster parameters", "counts": "what auto chooses on a GPU"}  # by section


def headline(difference: Difference) -> str:
    """Say in one line what changed."""
    sections = ", ".join(difference.sections)
    failed = [change for change in difference.changes if change.name == PROBLEM and change.new]
    if failed:
        entries = len(by_entry(failed))
        title = "hangs" if " hangs" in str(failed[0].new) else "cannot run"
        return f"{title} ({sections}): {failed[0].new}" + (f" (in {entries} entries)" if entries > 1 else "")
    kind = difference.kind
    title = MOVED if kind == MOVED else KINDS[kind].title
    if kind == "parameters":
        title = PARAMETERS.get(sections, title)
    return f"{title} ({sections}): {_SUMMARY.get(kind, _quantities)(difference.changes)}"


def body(difference: Difference) -> list[str]:
    """The lines below the headline: the first few values of each quantity, and what changed with them."""
    lines = _names(difference.changes) if difference.kind == NEW_OR_GONE else _values(difference.changes)
    for section in dict.fromkeys(change.section for change in difference.with_it):
        also = [change for change in difference.with_it if change.section == section]
        lines.append(f"with it, in {section}: {_quantities(also)}")
    return lines


def as_json(difference: Difference) -> dict[str, Any]:
    """A difference with all its changes, as JSON."""
    return {
        "kind": difference.kind,
        "headline": headline(difference),
        "changes": [_change(change) for change in difference.changes],
        "with_it": [_change(change) for change in difference.with_it],
    }


def _change(change: Change) -> dict[str, Any]:
    names = ("section", "entry", "name", "rank", "old", "new", "relative")
    return {name: getattr(change, name) for name in names}


def _by_name(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """Changes by quantity: orders of actions first, then the quantities that changed in most entries."""
    named = grouped(changes, attrgetter("name"))
    rank = {name: i for i, name in enumerate(_ORDER)}
    return dict(sorted(named.items(), key=lambda item: (rank.get(item[0], len(rank)), -len(by_entry(item[1])))))


def _quantities(changes: Sequence[Change]) -> str:
    """Name the first quantities, in how many entries each changed, and by how much."""
    named = list(_by_name(changes).items())
    parts = [f"{name} in {len(by_entry(group))}{_range(group)}" for name, group in named[:QUANTITIES]]
    omitted = len(named) - QUANTITIES
    return "; ".join(parts) + (f"; and {omitted} more quantities" if omitted > 0 else "")


def _range(changes: Sequence[Change]) -> str:
    """The smallest and the largest relative change in parentheses; empty where no change has one."""
    shares = [change.relative for change in changes if change.relative is not None]
    if not shares:
        return ""
    low, high = _percent(min(shares)), _percent(max(shares))
    return f" ({low})" if low == high else f" ({low} to {high})"


def _percent(share: float) -> str:
    return f"{100 * share:+.3g}%"


def _gone_or_new(changes: Sequence[Change]) -> str:
    """Say how many entries are new, and how many gone."""
    new = sum(change.old is None for change in changes)
    counts = ((new, "that the reference does not have"), (len(changes) - new, "of the reference that are gone"))
    return "; ".join(f"{count} {what}" for count, what in counts if count)


def _names(changes: Sequence[Change]) -> list[str]:
    lines = [
        f"{'new' if change.old is None else 'gone'}: {change.entry}" for change in changes[: QUANTITIES * EXAMPLES]
    ]
    return lines + ([f"and {len(changes) - len(lines)} more"] if len(changes) > len(lines) else [])


def _parameters(changes: Sequence[Change]) -> str:
    return "; ".join(f"{change.name} {_value(change.old)} -> {_value(change.new)}" for change in changes)


def _order(changes: Sequence[Change]) -> str:
    """Name the first action that changed, quoted from the most readable quantity that changed with it."""
    first, *_ = next(iter(_by_name(changes).values()))
    rank = "" if first.rank is None else f"rank {first.rank}: "
    others = len({(change.section, change.entry) for change in changes}) - 1
    return f"{first.entry}, {rank}{_old_and_new(first)}" + (f"; and {others} more entries" if others else "")


def moved(old: str, new: str) -> str:
    """Say how two sequences of actions differ: two swapped, or the first that differs. Positions count from 0."""
    if " " not in old + new:
        return f"{_short(old)} -> {_short(new)}"
    before, after = old.split(), new.split()
    places = [i for i, (a, b) in enumerate(zip_longest(before, after)) if a != b]
    if len(places) == 2 and len(before) == len(after):
        i, j = places
        if (before[i], before[j]) == (after[j], after[i]):
            return f"{before[i]} and {before[j]} swapped (positions {i} and {j})"
    for tag, i, j, k, n in SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        if tag != "equal":
            removed, added = (" ".join(part) or "nothing" for part in (before[i:j], after[k:n]))
            return f"position {i}: {_short(removed)} -> {_short(added)}"
    return "no difference"


def _communication(changes: Sequence[Change]) -> str:
    """Name the collectives that are new or gone, and scatter/gather where boundary tensors grew by the factor t."""
    parts = [_scatter_gather(changes)]
    named = _by_name(changes)
    counted = {name: group for name, group in named.items() if not name.endswith("bytes")}
    for name, group in counted.items():
        operation = name.removesuffix(" calls")
        if all(not change.new for change in group):
            parts.append(f"no {operation} any more")
        elif all(not change.old for change in group):
            parts.append(f"{operation} added")
        else:
            growths = [change.growth for change in group]
            parts.append(f"{'more' if max(growths) > 0 else 'fewer'} {operation}: {span(growths)}")
    if not counted:
        parts.append(_quantities(changes))
    return "; ".join(filter(None, parts)) + in_entries(changes)


def _scatter_gather(changes: Sequence[Change]) -> str:
    """Say if every boundary tensor grew or shrank by exactly t, as without or with scatter/gather (Section 4.1)."""
    boundary = [change for change in changes if change.name in ("message bytes", "pipeline bytes")]
    pairs = [(change.shards, _number(change.old), _number(change.new)) for change in boundary]
    if pairs and all(t > 1 and new == t * old for t, old, new in pairs):
        return "scatter/gather lost: boundary tensors are sent whole, not in t parts"
    if pairs and all(t > 1 and old == t * new for t, old, new in pairs):
        return "scatter/gather where there was none: boundary tensors are sent in t parts"
    return ""


def _number(value: Scalar | None) -> float:
    return value if isinstance(value, int | float) else 0


def _growing(changes: Sequence[Change]) -> str:
    """Name the functions whose lines grow with another power of the size, the worst first."""
    words = {None: "few lines", 0: "constant", 1: "linear", 2: "quadratic"}

    def power(value: Scalar | None) -> str:
        return words.get(value if isinstance(value, int) else None, f"power {value}")

    worst = sorted(changes, key=lambda change: -_number(change.new))[:QUANTITIES]
    return "; ".join(f"{c.name} {power(c.old)} -> {power(c.new)} in {c.entry}" for c in worst)


_SUMMARY = {kind: counted for kind, of in KINDS.items() if of.counted} | {
    "entries": _gone_or_new,
    "parameters": _parameters,
    "order": _order,
    "communication": _communication,
    "growth": _growing,
    "calls": calls,
    MOVED: moved_work,
}


def _values(changes: Sequence[Change]) -> list[str]:
    """The first few values of each of the first few quantities, a line each."""
    lines = []
    named = list(_by_name(changes).items())
    for name, group in named[:QUANTITIES]:
        entries = by_entry(group)
        lines.append(f"{name}{_range(group)}")
        lines += [f"  {entry}: {_of_entry(of_entry)}" for entry, of_entry in list(entries.items())[:EXAMPLES]]
        if len(entries) > EXAMPLES:
            lines.append(f"  and {len(entries) - EXAMPLES} more")
    if len(named) > QUANTITIES:
        lines.append(f"also: {', '.join(name for name, _ in named[QUANTITIES:])}")
    return lines


def _of_entry(changes: Sequence[Change]) -> str:
    """Describe the change of one quantity of an entry; ranks that changed alike are named together."""
    by_text: dict[str, list[int]] = {}
    for change in changes:
        by_text.setdefault(_old_and_new(change), []).append(-1 if change.rank is None else change.rank)
    texts = [text if ranks == [-1] else f"rank {_ranks(ranks)}: {text}" for text, ranks in by_text.items()]
    return "; ".join(texts[:2]) + (f"; and {len(texts) - 2} more" if len(texts) > 2 else "")


def _ranks(ranks: Sequence[int]) -> str:
    return f"{ranks[0]}" if len(ranks) == 1 else f"{', '.join(map(str, ranks[:4]))}{', ...' if len(ranks) > 4 else ''}"


def _old_and_new(change: Change) -> str:
    if isinstance(change.old, str) and isinstance(change.new, str):
        return "changed" if change.name.startswith("digest") else moved(change.old, change.new)
    share = "" if change.relative is None else f" ({_percent(change.relative)})"
    return f"{_value(change.old)} -> {_value(change.new)}{share}"


def _value(value: Mapping[str, Any] | Scalar | None) -> str:
    return "none" if value is None else _short(str(value))


def _short(text: str) -> str:
    return text if len(text) <= TEXT else f"{text[: TEXT - 3]}..."
