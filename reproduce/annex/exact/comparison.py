"""Collects everything that is deterministic, and compares it with the committed reference or makes it the reference."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from reproduce.annex.exact import counts, reference
from reproduce.annex.exact.differences import Change, Difference, compare, explain
from reproduce.annex.exact.entries import SECTIONS, Section
from results.records import storage
from results.records.errors import UnavailableError


@dataclass(frozen=True)
class ExactResult:
    """The collected sections, their differences from the reference, and why others were not compared with it."""

    sections: dict[str, Section]
    differences: list[Difference]
    skipped: dict[str, str] = field(default_factory=dict)


def check(names: Sequence[str] = SECTIONS) -> ExactResult:
    """Collect the sections and compare them with the reference.

    Raises `InvalidResultsError` where there is no reference, `UnavailableError` where a section cannot be collected.
    """
    committed = {name: reference.read(name) for name in names}
    skipped = {name: why for name in names if (why := counts.incomparable(committed[name]))}
    sections = {name: collect(name) for name in names if name not in skipped}
    changes: list[Change] = []
    for name, section in sections.items():
        changes += compare(name, committed[name], section)
    return ExactResult(sections, explain(changes), skipped)


def collect(name: str) -> Section:
    """The values of a section as the code computes them now."""
    if name == "schedules":
        from reproduce.annex.exact import schedules, simulated

        return schedules.collect(simulated.configurations())
    section: Section = import_module(f"reproduce.annex.exact.{name}").collect()
    return section


def accept(names: Sequence[str]) -> list[Path]:
    """Write what is computed now as the reference, all sections or none; returns its files.

    Raises `UnavailableError` where there is no reference to write, or where a section cannot be collected.
    """
    if not storage.IS_CHECKOUT:
        raise UnavailableError("the reference belongs to a checkout of the project, and this is an installed copy")
    sections = {name: collect(name) for name in names}
    for name, section in sections.items():
        for label, entry in section.items():
            if why := entry.problem:
                raise UnavailableError(f"nothing accepted: {name}, {label}: {why}")
    return [reference.write(name, section) for name, section in sections.items()]
