"""`reproduce gate exact`, also as `python -m benchmarks exact`: all that is deterministic against the reference.

Collects the values, compares them, and prints or accepts what changed.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module

from benchmarks.exact import counts, reference, wording
from benchmarks.exact.differences import Change, Difference, compare, explain
from benchmarks.exact.quantities import SECTIONS, Section
from benchmarks.harness.command import Parser
from results.records import errors, storage
from results.records.documents import JSON_HELP, print_document
from results.records.errors import UnavailableError, UsageError, did_you_mean

MEANINGS = {
    errors.DONE: "the same as the reference, or accepted",
    errors.USAGE: errors.MEANINGS[errors.USAGE],
    errors.UNAVAILABLE: "this machine cannot do it: no torch, or the reference cannot be written",
    errors.REGRESSED: "something differs from the reference; the output says what",
    errors.INVALID_RESULTS: "there is no valid reference",
}

HELP = ""
DESCRIPTION = "Exact checks: everything that is deterministic, compared with the committed reference at zero tolerance."


@dataclass(frozen=True)
class ExactResult:
    """The collected sections, their differences from the reference, and why others were not compared with it."""

    sections: dict[str, Section]
    differences: list[Difference]
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """The exit code."""
        return errors.REGRESSED if self.differences else errors.DONE


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
        from benchmarks.exact import schedules, simulated

        return schedules.collect(simulated.configurations())
    section: Section = import_module(f"benchmarks.exact.{name}").collect()
    return section


def add_parser(commands: "argparse._SubParsersAction[Parser]") -> None:
    """Add the command to those of `python -m benchmarks`."""
    codes = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
    added = commands.add_parser(
        "exact",
        help="compare all that is deterministic with the committed reference",
        description=DESCRIPTION,
        epilog=f"{HELP}exit codes:\n{codes}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_arguments(added)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the exact checks."""
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--accept", action="store_true", help="make what is computed now the reference, on purpose")
    parser.add_argument("--json", action="store_true", help=JSON_HELP)


def run(parsed: argparse.Namespace) -> int:
    """Print what differs, and return the exit code. Raises `ReproduceError` for the user's errors."""
    for name in parsed.sections:
        if name not in SECTIONS:
            raise UsageError(f"unknown section {name!r}{did_you_mean(name, SECTIONS)}; there are {', '.join(SECTIONS)}")
    names = [name for name in SECTIONS if name in parsed.sections] or list(SECTIONS)
    if parsed.accept:
        return _accept(names, parsed.json)
    result = check(names)
    if parsed.json:
        print_document("exact", 1, _document(result))
    else:
        _print(result)
    return result.code


def _accept(names: Sequence[str], as_json: bool) -> int:
    """Write what is computed now as the reference, all sections or none, and return the exit code."""
    if not storage.IS_CHECKOUT:
        raise UnavailableError("the reference belongs to a checkout of the project, and this is an installed copy")
    sections = {name: collect(name) for name in names}
    for name, section in sections.items():
        for label, entry in section.items():
            if why := entry.problem:
                raise UnavailableError(f"nothing accepted: {name}, {label}: {why}")
    files = [reference.write(name, section) for name, section in sections.items()]
    if as_json:
        names = [path.name for path in files]
        print_document("exact", 1, {"exit_code": errors.DONE, "status": "accepted", "files": names})
    else:
        print(f"accepted: wrote {', '.join(path.name for path in files)} in {reference.shown(reference.FOLDER)}")
        print("git diff shows every value that changed; commit it with the change that caused it")
    return errors.DONE


def _document(result: ExactResult) -> dict[str, object]:
    """The result as `--json` prints it."""
    return {
        "exit_code": result.code,
        "status": "different" if result.differences else "same",
        "sections": {name: {"entries": len(section)} for name, section in result.sections.items()},
        "skipped": result.skipped,
        "differences": [wording.as_json(difference) for difference in result.differences],
    }


def _print(result: ExactResult) -> None:
    """Print each difference as a headline and the first few values."""
    compared = ", ".join(f"{len(section)} {name}" for name, section in result.sections.items())
    for name, why in result.skipped.items():
        print(f"exact: {name} not compared: {why}")
    if not result.differences:
        print(f"exact: the same as the reference ({compared})")
        return
    number = len(result.differences)
    print(f"exact: {number} difference{'s' if number > 1 else ''} from the reference ({compared})")
    for i, difference in enumerate(result.differences, 1):
        print(f"\n{i}. {wording.headline(difference)}")
        for line in wording.body(difference):
            print(f"     {line}")
    print(f"\nIf this is meant: {reference.ACCEPT}, and commit the reference with the change.")
