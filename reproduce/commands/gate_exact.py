"""`reproduce gate exact`: everything deterministic against the committed reference, at zero tolerance."""

from argparse import ArgumentParser, Namespace

from benchmarks.exact import reference, wording
from benchmarks.exact.check import ExactResult, accept, check
from benchmarks.exact.quantities import SECTIONS
from reproduce.commands import options
from results.records import errors
from results.records.documents import print_document
from results.records.errors import UsageError, did_you_mean


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce gate exact`."""
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--accept", action="store_true", help="make what is computed now the reference, on purpose")
    options.add_json(parser)


def run(parsed: Namespace) -> int:
    """Print what differs, and return the exit code. Raises `ReproduceError` for the user's errors."""
    for name in parsed.sections:
        if name not in SECTIONS:
            raise UsageError(f"unknown section {name!r}{did_you_mean(name, SECTIONS)}; there are {', '.join(SECTIONS)}")
    names = [name for name in SECTIONS if name in parsed.sections] or list(SECTIONS)
    if parsed.accept:
        files = accept(names)
        if parsed.json:
            files_written = [path.name for path in files]
            print_document("exact", 1, {"exit_code": errors.DONE, "status": "accepted", "files": files_written})
        else:
            print(f"accepted: wrote {', '.join(path.name for path in files)} in {reference.shown(reference.FOLDER)}")
            print("git diff shows every value that changed; commit it with the change that caused it")
        return errors.DONE
    result = check(names)
    code = errors.REGRESSED if result.differences else errors.DONE
    if parsed.json:
        print_document("exact", 1, _document(result, code))
    else:
        _print(result)
    return code


def _document(result: ExactResult, code: int) -> dict[str, object]:
    """The result as `--json` prints it."""
    return {
        "exit_code": code,
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
