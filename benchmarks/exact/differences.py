"""What differs from the reference, and what of it explains what: one cause, one message.

Kinds of quantities stand in the order in which one explains the next (`KINDS`). A change that a message of an earlier
kind explains is listed with that message: so a swapped action is one message, and the bytes and times that move with it
are not further ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.exact.quantities import KINDS, Entry, Quantities, Scalar, Section, Value


@dataclass(frozen=True)
class Change:
    """One quantity of an entry, on one rank if it has ranks: None is a value that is not there."""

    section: str
    entry: str
    kind: str
    name: str
    rank: int | None
    old: Scalar | None
    new: Scalar | None
    schedule: str = ""
    shards: int = 1

    @property
    def relative(self) -> float | None:
        """(new - old)/old of numbers, where old is not 0."""
        if isinstance(self.old, str) or isinstance(self.new, str) or not self.old or self.new is None:
            return None
        return self.new / self.old - 1


@dataclass
class Message:
    """Changes of one kind that have one cause as far as can be told, and what changed with them."""

    kind: str
    changes: list[Change]
    with_it: list[Change] = field(default_factory=list)

    @property
    def sections(self) -> list[str]:
        """Where the changes are."""
        return list(dict.fromkeys(change.section for change in self.changes))


def compare(name: str, reference: Mapping[str, Quantities], found: Section) -> list[Change]:
    """Every difference of a section, in the order of its entries."""
    changes: list[Change] = []
    for entry in dict.fromkeys([*reference, *found]):
        if entry not in found:
            changes.append(Change(name, entry, KINDS[0], "entry", None, "in the reference", "gone"))
        elif entry not in reference:
            changes.append(Change(name, entry, KINDS[0], "entry", None, None, "not in the reference"))
        else:
            changes += _of_entry(name, entry, reference[entry], found[entry])
    return changes


def _of_entry(section: str, entry: str, reference: Quantities, found: Entry) -> Iterable[Change]:
    for kind in KINDS[1:]:
        old, new = reference.get(kind, {}), found.quantities.get(kind, {})
        for name in dict.fromkeys([*old, *new]):
            for rank, before, after in _by_rank(old.get(name), new.get(name)):
                # Unlike 1 == 1.0, a value that changes its type changes.
                if before != after or type(before) is not type(after):
                    yield Change(section, entry, kind, name, rank, before, after, found.schedule, found.shards)


def _by_rank(old: Value | None, new: Value | None) -> Iterable[tuple[int | None, Scalar | None, Scalar | None]]:
    if not isinstance(old, list) and not isinstance(new, list):
        return [(None, old, new)]
    before, after = (value if isinstance(value, list) else [] for value in (old, new))
    ranks = range(max(len(before), len(after)))
    return [(r, before[r] if r < len(before) else None, after[r] if r < len(after) else None) for r in ranks]


def explain(changes: Sequence[Change]) -> list[Message]:
    """The changes as few messages: what an earlier kind explains goes with it."""
    messages: list[Message] = []
    for kind in KINDS:
        own: dict[str, list[Change]] = {}
        explaining = list(messages)
        for change in changes:
            if change.kind != kind:
                continue
            cause = next((message for message in explaining if _explains(message, change)), None)
            if cause is not None:
                cause.with_it.append(change)
            else:  # the same order of actions is in every section
                own.setdefault("" if kind == "order" else change.section, []).append(change)
        messages += [Message(kind, found) for found in own.values()]
    return messages


def _explains(message: Message, change: Change) -> bool:
    if message.kind == "entries":
        return False
    if message.kind == "parameters":
        return change.section in message.sections
    if message.kind == "order" and _schedule_kinds([change]) & _schedule_kinds(message.changes):
        return True
    return any((one.section, one.entry) == (change.section, change.entry) for one in message.changes)


def _schedule_kinds(changes: Iterable[Change]) -> set[str]:
    """gpipe, 1f1b, interleaved."""
    return {change.schedule.split()[0] for change in changes if change.schedule}
