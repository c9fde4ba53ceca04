"""What the commands share: a parser whose errors are one line, and ending with an exit code instead of a traceback."""

import argparse
import errno
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ptdp_core import interrupts
from results.records import errors, storage
from results.records.errors import ReproduceError, UsageError, did_you_mean
from results.records.storage import StorageError


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line, with the word that was probably meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report an unknown option here, where the known options can be compared."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {shlex.join(unknown)}{self._options_like(unknown[0])}")
        return parsed, unknown

    def _options_like(self, word: str) -> str:
        """The option that was probably meant, or all that there are; '' for a word that is no option."""
        options = [option for action in self._actions for option in action.option_strings if option.startswith("--")]
        if not word.startswith("-"):
            return ""
        # Without the dashes, which would make any two short options alike.
        near = did_you_mean(word.partition("=")[0].lstrip("-"), [option.lstrip("-") for option in options])
        return near.replace("'", "'--", 1) or f"; there are {', '.join(options)}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            words = tuple(map(str, action.choices))
            message = f"{value!r} is unknown; there are {', '.join(words)}{did_you_mean(str(value), words)}"
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> "None":  # type: ignore[override]
        raise UsageError(f"{message} ({self.prog} --help shows how)")


def path_of(text: str) -> Path:
    """A path given on the command line, which names something: '' would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("'' names no file or folder; leave the option out for its default")
    return Path(text)


def file_to_write(text: str) -> Path:
    """A path for a file that is written, given on the command line. Its folder is not made: it may be a misspelling."""
    path = path_of(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"{text}: there is no folder {path.parent}; needs one that is there; try mkdir -p {path.parent}"
        )
    return path


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the option --results DIR."""
    parser.add_argument(
        "--results",
        type=path_of,
        default=storage.DEFAULT_RESULTS,
        metavar="DIR",
        help=f"folder of the results (default: {storage.DEFAULT_RESULTS_TEXT})",
    )


def run_command(name: str, program: str, arguments: Sequence[str], dispatch: Callable[[Sequence[str]], int]) -> int:
    """Run `dispatch(arguments)` and return its exit code. An exception is explained on stderr, in a line after `name`,
    and so is a warning.

    An interrupted command says how to resume: with `program` and the same arguments, less --fresh. With --debug among
    the arguments the traceback is shown, too.
    """
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: _say(name, f"warning: {' '.join(str(message).split())}")
                return dispatch(arguments)
        finally:  # also after --help, which ends with SystemExit: a reader that is gone is noticed here
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed the pipe
        _drop_output()
        return errors.DONE
    except KeyboardInterrupt as error:
        return _interrupted(name, program, arguments, error)
    except Exception as error:
        if interrupts.received():  # a library turned the interrupt into an exception of its own
            return _interrupted(name, program, arguments, KeyboardInterrupt())
        if "--debug" in arguments:
            import traceback

            traceback.print_exc()
        return _explain(name, error)


def _interrupted(name: str, program: str, arguments: Sequence[str], error: KeyboardInterrupt) -> int:
    code = interrupts.settle()
    resume = shlex.join([*program.split(), *(a for a in arguments if a != "--fresh")])
    _say(name, f"{str(error) or 'interrupted'}; resume with: {resume}")
    return code


def _drop_output() -> None:
    """Point stdout at nothing, so that Python does not fail on the closed pipe once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(name: str, error: Exception) -> int:
    if isinstance(error, ReproduceError):
        _say(name, str(error))
        return error.code
    if isinstance(error, StorageError):
        _say(name, str(error))
        return errors.UNAVAILABLE
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _drop_output()
        _say(name, "cannot write standard output: no space left on device")
        return errors.UNAVAILABLE
    if isinstance(error, ModuleNotFoundError):
        from ptdp_core.packages import not_installed  # imported here, as only errors need it

        if line := not_installed(error):
            _say(name, line)
            return errors.UNAVAILABLE
    text = " ".join(str(error).split())
    _say(name, f"internal error: {type(error).__name__}: {text}; rerun with --debug for the traceback")
    return errors.INTERNAL


def _say(name: str, message: str) -> None:
    print(f"{name}: {message}", file=sys.stderr)
