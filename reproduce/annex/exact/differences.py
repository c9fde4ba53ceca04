"""Finds what changed against the reference, and groups the changes so that one cause is one difference.

The kinds of quantities are ordered (`KINDS`) so that a change of one kind explains changes of later kinds. A change
that a difference of an earlier kind explains is listed in that difference: a swapped action, with the bytes and times
that move with it, is one difference. Entries in which other functions do the same work as before are one, too: `MOVED`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reproduce.annex.exact.entries import KINDS, NEW_OR_GONE, UNITS, Entry, Quantities, Scalar, Section, Value

MOVED = "moved"  # the kind of a difference in which nothing changed but which function does what


@dataclass(frozen=True)
class Change:
    """The change of one quantity of an entry; `old` or `new` is None if absent.

    It is on one rank, or, if `rank` is None, on all `ranks` of the entry, of which there may be none.
    """

    section: str
    entry: str
    kind: str
    name: str
    rank: int | None
    old: Scalar | None
    new: Scalar | None
    schedule: str = ""
    shards: int = 1
    ranks: int = 0

    @property
    def relative(self) -> float | None:
        """(new - old)/old of numbers; None for texts, and where old is 0."""
        if isinstance(self.old, str) or isinstance(self.new, str) or not self.old or self.new is None:
            return None
        return self.new / self.old - 1

    @property
    def growth(self) -> float:
        """new - old of numbers, where what is absent counts as 0; 0 for texts."""
        old, new = (value if isinstance(value, int | float) else 0 for value in (self.old, self.new))
        return new - old

    @property
    def counted(self) -> tuple[str, str]:
        """Of a counted quantity the function, and what is counted of it, such as ('model.f', 'mm bf16')."""
        first, _, item = self.name.partition(": ")
        if self.kind in ("alive", "peak"):
            what, _, function = item.partition(" of ")
            return function, f"{first}: {what}"
        return (f"{first}.{item}", "calls") if self.kind == "calls" else (first, item)


@dataclass
class Difference:
    """Changes of one kind that seem to have one cause, and the changes of later kinds that they explain."""

    kind: str
    changes: list[Change]
    with_it: list[Change] = field(default_factory=list)

    @property
    def sections(self) -> list[str]:
        """The sections of the changes."""
        return list(dict.fromkeys(change.section for change in self.changes))


def compare(name: str, reference: Mapping[str, Quantities], current: Section) -> list[Change]:
    """List every change of a section, in the order of its entries."""
    changes: list[Change] = []
    for entry in dict.fromkeys([*reference, *current]):
        if entry not in current:
            changes.append(Change(name, entry, NEW_OR_GONE, "entry", None, "in the reference", "gone"))
        elif entry not in reference:
            changes.append(Change(name, entry, NEW_OR_GONE, "entry", None, None, "not in the reference"))
        else:
            changes += _changes_of_entry(name, entry, reference[entry], current[entry])
    return changes


def _changes_of_entry(section: str, label: str, reference: Quantities, entry: Entry) -> Iterable[Change]:
    """Yield the changes of an entry, one for each quantity, thing counted and rank."""
    values = [value for kinds in (reference, entry.quantities) for kind in kinds.values() for value in kind.values()]
    ranks = max((len(value) for value in values if isinstance(value, list)), default=0)
    for kind, of in KINDS.items():
        old, new = reference.get(kind, {}), entry.quantities.get(kind, {})
        for name in dict.fromkeys([*old, *new]):
            by_item = _counted if of.counted else _by_rank
            for item, rank, before, after in by_item(old.get(name), new.get(name)):
                # 1 == 1.0, but a whole number that becomes a float is a change, too.
                if before != after or type(before) is not type(after):
                    full = f"{name}: {item}" if item else name
                    yield Change(section, label, kind, full, rank, before, after, entry.schedule, entry.shards, ranks)


ItemChange = tuple[str, int | None, Scalar | None, Scalar | None]  # what is counted ('' for all), rank, old, new


def _by_rank(old: Value | None, new: Value | None) -> Iterable[ItemChange]:
    """Old and new of a value, or of every item of a list by rank."""
    if not isinstance(old, list) and not isinstance(new, list):
        return [("", None, old, new)]
    before, after = (value if isinstance(value, list) else [] for value in (old, new))
    ranks = range(max(len(before), len(after)))
    return [("", r, before[r] if r < len(before) else None, after[r] if r < len(after) else None) for r in ranks]


def _counted(old: Value | None, new: Value | None) -> Iterable[ItemChange]:
    """Old and new of every thing counted, in two texts or in lists of them by rank; a single text is for all ranks."""
    size = max(len(value) if isinstance(value, list) else 0 for value in (old, new))
    for rank in range(size) if size else [None]:
        before, after = (_counts(value[rank or 0] if isinstance(value, list) else value) for value in (old, new))
        for item in dict.fromkeys([*before, *after]):
            yield item, rank, before.get(item, 0), after.get(item, 0)


def _counts(text: Scalar | None) -> dict[str, int]:
    """What a text such as '4 clone bf16, 12 mm bf16' counts."""
    pairs = (part.split(" ", 1) for part in str(text or "").split(", ") if part)
    return {item: int(count) for count, item in pairs}


def explain(changes: Sequence[Change]) -> list[Difference]:
    """Group the changes into few differences: a change is listed with one of an earlier kind that explains it."""
    by_entry: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        by_entry.setdefault((change.section, change.entry), []).append(change)
    moves = {key: group for key, group in by_entry.items() if _is_move(group)}
    moving = [group for group in moves.values() if any(change.kind in UNITS for change in group)]
    movers = {(change.section, change.counted[0]) for group in moving for change in group}
    others: list[Change] = []
    moved: dict[str, list[Change]] = {}  # by section
    for key, group in by_entry.items():
        section = key[0]
        # An entry in which a function is only called needs another one that shows that work moved there.
        is_moved = key in moves and all((section, change.counted[0]) in movers for change in group)
        (moved.setdefault(section, []) if is_moved else others).extend(group)
    return [*_by_cause(others), *(Difference(MOVED, group) for group in moved.values())]


def _is_move(changes: Iterable[Change]) -> bool:
    """Whether in an entry, all of whose changes these are, nothing changed but which function does what.

    Every total over all functions is then the same, and every function that is called more or less often was or is not
    called at all. So is every function whose lines grow otherwise, and a new one does not grow more than linearly.
    """
    totals: Counter[tuple[str, int | None, str]] = Counter()
    for change in changes:
        if change.kind == "calls":
            if change.old and change.new:
                return False
        elif change.kind == "growth":
            if change.growth > 1 or None not in (change.old, change.new):
                return False
        elif change.kind in UNITS:
            everywhere = change.rank is None and change.ranks
            for rank in range(change.ranks) if everywhere else [change.rank]:
                totals[change.kind, rank, change.counted[1]] += int(change.growth)
        else:
            return False
    return not any(totals.values())


def _by_cause(changes: Sequence[Change]) -> list[Difference]:
    """Group the changes by kind and section, except for those that a difference of an earlier kind explains."""
    differences: list[Difference] = []
    for kind in KINDS:
        unexplained: dict[str, list[Change]] = {}  # by section
        explaining = list(differences)
        for change in changes:
            if change.kind != kind:
                continue
            cause = next((difference for difference in explaining if _explains(difference, change)), None)
            if cause is not None:
                cause.with_it.append(change)
            else:  # sections share their orders of actions, so these are one difference over all sections
                unexplained.setdefault("" if kind == "order" else change.section, []).append(change)
        differences += [Difference(kind, group) for group in unexplained.values()]
    return differences


def _explains(difference: Difference, change: Change) -> bool:
    """Whether a change follows from a difference of an earlier kind.

    A parameter explains all changes of its section. An order explains those of all entries with such a schedule, and
    every difference those of its own entries, except that an entry which is new or gone explains nothing.
    """
    if difference.kind == "entries":
        return False
    if difference.kind == "parameters":
        return change.section in difference.sections
    if difference.kind == "order" and _schedule_kinds([change]) & _schedule_kinds(difference.changes):
        return True
    return any((cause.section, cause.entry) == (change.section, change.entry) for cause in difference.changes)


def _schedule_kinds(changes: Iterable[Change]) -> set[str]:
    """The names of the schedules that the changed entries run, such as gpipe and 1f1b, without their p, m and v."""
    return {change.schedule.split()[0] for change in changes if change.schedule}
