"""Puts into words what functions do more or less often, and what moved from one function to another."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from reproduce.annex.exact.differences import Change
from reproduce.annex.exact.entries import UNITS

QUANTITIES = 4  # how many quantities of a difference are shown


def by_entry(changes: Iterable[Change]) -> dict[str, list[Change]]:
    """Changes by entry, in their order."""
    return grouped(changes, attrgetter("entry"))


def grouped(changes: Iterable[Change], key: Callable[[Change], str]) -> dict[str, list[Change]]:
    """Changes by a key, in their order."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(key(change), []).append(change)
    return groups


def in_entries(changes: Iterable[Change]) -> str:
    """In how many entries something changed, as headlines end."""
    entries = len(by_entry(changes))
    return f" (in {entries} {'entry' if entries == 1 else 'entries'})"


def counted(changes: Sequence[Change]) -> str:
    """Say what each function does more or less often, those first that wait for the device or do something new."""
    functions: dict[str, dict[str, list[Change]]] = {}
    for change in changes:
        function, _, item = change.name.partition(": ")
        functions.setdefault(function, {}).setdefault(item, []).append(change)

    def prominence(item: tuple[str, dict[str, list[Change]]]) -> tuple[bool, bool, float]:
        """The key by which functions are sorted, False first."""
        counted = [change for name, group in item[1].items() if name != "bytes" for change in group]
        new = any(not (change.old and change.new) for change in counted)
        growth = sum(abs(change.growth) for change in counted)
        return "host synchronisation" not in " ".join(item[1]), not new, -growth

    named = sorted(functions.items(), key=prominence)
    parts = [f"{function}: {', '.join(_growths(items))}" for function, items in named[:QUANTITIES]]
    omitted = len(named) - QUANTITIES
    more = f"; and {omitted} more functions" if omitted > 0 else ""
    return "; ".join(parts) + more + in_entries(changes)


def _growths(items: Mapping[str, Sequence[Change]]) -> list[str]:
    """The first few items of a function with their smallest and largest growth, such as '+8 to +24 clone bf16'."""
    texts = []
    for item, group in sorted(items.items(), key=_of_note):
        texts.append(f"{span([change.growth for change in group])} {item}")
    return texts[:QUANTITIES] + ([f"and {len(texts) - QUANTITIES} more"] if len(texts) > QUANTITIES else [])


def span(growths: Sequence[float], form: str = "+.0f") -> str:
    """The smallest and the largest growth, such as '+8 to +24', or the only one."""
    low, high = (format(growth, form) for growth in (min(growths), max(growths)))
    return low if low == high else f"{low} to {high}"


def _of_note(item: tuple[str, Sequence[Change]]) -> tuple[bool, bool, bool]:
    """The key by which things counted are sorted: host synchronisations, what is new, what is not, bytes."""
    name, changes = item
    return "host synchronisation" not in name, name == "bytes", any(change.old for change in changes)


def calls(changes: Sequence[Change]) -> str:
    """Say what is called more or less often, and if that was never called, as is a new method without operators."""
    new = all(not change.old for change in changes)
    return counted(changes) + ("; not called before, so lines moved there, or Python does more" if new else "")


def moved_work(changes: Sequence[Change]) -> str:
    """Say what went from which functions to which, such as '4 to 8 operators from model.f to model.g'."""
    told = [c for c in changes if c.kind in UNITS and c.counted[1] not in ("bytes", "operators under way")]
    told = told or [c for c in changes if c.kind in UNITS]
    kind = next(kind for kind in UNITS if any(change.kind == kind for change in told))
    told = [change for change in told if change.kind == kind]
    losing, gaining = (
        ", ".join(dict.fromkeys(change.counted[0] for change in told if sign * change.growth > 0)) for sign in (-1, 1)
    )
    gained: Counter[tuple[str, int | None]] = Counter()  # by entry and rank
    for change in told:
        if change.growth > 0:
            gained[change.entry, change.rank] += int(change.growth)
    text = f"{span(list(gained.values()), '.0f')} {UNITS[kind]} from {losing} to {gaining}; nothing else changed"
    return text + in_entries(changes)
