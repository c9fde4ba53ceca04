"""The exit codes, one table for every command, and the errors that end a command with one of them and a single line."""

DONE = 0
INTERNAL = 1
USAGE = 2
UNAVAILABLE = 3
POINTS_FAILED = 4
CONTRADICTED = 5
REGRESSED = 6
INCONCLUSIVE = 7
INVALID_RESULTS = 8
NOTHING_SELECTED = 9
DIVERGED = 10
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    DONE: "done",
    INTERNAL: "internal error: a bug of this program, or a rank that failed; --debug shows the traceback",
    USAGE: "usage: the command line, a configuration or an input file is wrong",
    UNAVAILABLE: "this machine cannot do it: a place not writable or full, a port in use, fidelity not available",
    POINTS_FAILED: "some points failed or are invalid; the others are kept",
    CONTRADICTED: "a claim of the paper is contradicted (only with --strict)",
    REGRESSED: "a regression was shown, or a difference from the reference or above a limit",
    INCONCLUSIVE: "inconclusive: neither a regression nor its absence could be shown",
    INVALID_RESULTS: "an invalid results file (it is left as it is), or results that cannot be compared",
    NOTHING_SELECTED: "nothing was selected, measured, or in common",
    DIVERGED: "training diverged: loss, gradients or parameters are not finite",
    HUNG_UP: "ended by SIGHUP, as its terminal is gone; what is finished is kept",
    INTERRUPTED: "interrupted by Ctrl-C; what is finished is kept, and the message says how to resume",
    TERMINATED: "ended by SIGTERM, in the same way",
}


class ReproduceError(Exception):
    """An error that the user can do something about. It ends a command with one line and an exit code."""

    code = USAGE


class UsageError(ReproduceError):
    """The command line or an input file is wrong."""


class UnavailableError(ReproduceError):
    """This machine, or this version, cannot do what was asked."""

    code = UNAVAILABLE


class InvalidResultsError(ReproduceError):
    """A file of results cannot be read, or is not what its schema describes."""

    code = INVALID_RESULTS


class NothingSelectedError(ReproduceError):
    """The command line selects nothing that could be run, measured or compared."""

    code = NOTHING_SELECTED


def did_you_mean(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """The text '; did you mean ...?' with the nearest known name, or '' if none is near."""
    from difflib import get_close_matches  # imported here, as only errors need it

    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
