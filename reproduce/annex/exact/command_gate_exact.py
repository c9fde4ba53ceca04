"""`reproduce gate exact`: everything deterministic against the committed reference, at zero tolerance."""

from argparse import ArgumentParser, Namespace
from typing import Any

from reproduce.annex.exact import reference, wording
from reproduce.annex.exact.comparison import ExactResult, accept, check
from reproduce.annex.exact.entries import SECTIONS
from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document
from results.records.errors import UsageError, did_you_mean


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce gate exact`."""
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--accept", action="store_true", help="make what is computed now the reference, on purpose")
    options.add(parser, "json")


def run(parsed: Namespace) -> int:
    """Print what differs, and return the exit code. Raises `ReproduceError` for the user's errors."""
    for name in parsed.sections:
        if name not in SECTIONS:
            raise UsageError(f"unknown section {name!r}{did_you_mean(name, SECTIONS)}; there are {', '.join(SECTIONS)}")
    names = [name for name in SECTIONS if name in parsed.sections] or list(SECTIONS)
    if parsed.accept:
        files = [path.name for path in accept(names)]
        document: dict[str, Any] = {"exit_code": errors.DONE, "status": "accepted", "files": files}
        lines = [
            f"accepted: wrote {', '.join(files)} in {reference.shown(reference.FOLDER)}",
            "git diff shows every value that changed; commit it with the change that caused it",
        ]
    else:
        result = check(names)
        lines = _lines(result)
        document = {
            "exit_code": errors.REGRESSED if result.differences else errors.DONE,
            "status": "different" if result.differences else "same",
            "sections": {name: {"entries": len(section)} for name, section in result.sections.items()},
            "skipped": result.skipped,
            "differences": [wording.as_json(difference) for difference in result.differences],
        }
    if parsed.json:
        print_document("exact", 1, document)
    else:
        print("\n".join(lines))
    return int(document["exit_code"])


def _lines(result: ExactResult) -> list[str]:
    """Each difference as a headline and the first few values."""
    lines = [f"exact: {name} not compared: {why}" for name, why in result.skipped.items()]
    compared = ", ".join(f"{len(section)} {name}" for name, section in result.sections.items())
    if not result.differences:
        return [*lines, f"exact: the same as the reference ({compared})"]
    number = len(result.differences)
    lines += [f"exact: {number} difference{'s' if number > 1 else ''} from the reference ({compared})"]
    for i, difference in enumerate(result.differences, 1):
        lines += ["", f"{i}. {wording.headline(difference)}", *(f"     {line}" for line in wording.body(difference))]
    return [*lines, "", f"If this is meant: {reference.ACCEPT}, and commit the reference with the change."]
