"""The command line: finds the command's module, parses, and ends with an exit code; errors are one line."""

import argparse
import errno
import os
import shlex
import sys
import textwrap
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import groupby
from typing import Any

from ptdp_core import interrupts
from reproduce.commands import COMMANDS, EXAMPLES, GONE, GROUPS, module_of, options
from reproduce.commands.options import program, program_to_type
from results.records import errors
from results.records.errors import ReproduceError, UsageError, did_you_mean
from results.records.storage import StorageError
from results.visible import VisibleStream

DESCRIPTION = "Reproduce the SC'21 Megatron-LM paper, and papers after it; judge their claims."
LISTED = "\n".join(
    "\n".join([f"\n{title}:", *(f"  {name:<11}{text}" for name, text in group.items())])
    for title, group in GROUPS.items()
)

WHOLE_WORDS: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
NUMBERS: Mapping[Any, str] = {float: "a number, such as 2.5", int: "a whole number, such as 8"}


class Parser(argparse.ArgumentParser):
    """A parser that reports a wrong command line in one line, with the word that was probably meant.

    `fields` are those that a command takes as key=value, or with `--set`.
    """

    fields: Collection[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but report an unknown option here, where the known options can be compared."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            _check_ids(getattr(parsed, "ids", ()))
            hint, prog = self._options_like(unknown[0])
            raise UsageError(f"unrecognized arguments: {shlex.join(unknown)}{hint} ({prog} --help shows how)")
        return parsed, unknown

    def _options_like(self, word: str) -> tuple[str, str]:
        """The option or the field that was probably meant, the command that has it, or all that there are; whose help.

        For a word without '=' it is the command of two words, if any.
        """
        name, options = word.partition("=")[0].lstrip("-"), self.options
        if not word.startswith("-") and (name == word or "--set" not in options):
            pairs = [name.split() for name in COMMANDS if " " in name]
            return did_you_mean(word, [second for first, second in pairs if first in self.prog.split()]), self.prog
        if near := did_you_mean(name, [option.lstrip("-") for option in options]):  # dashes make short ones alike
            return near.replace("'", "'--", 1), self.prog
        key = name.replace("-", "_")
        field = key if key in self.fields else next((each for each in self.fields if each.startswith(key)), "")
        having = [other for other in COMMANDS if not field and f"--{name}" in parser_of(other).options]
        if len(having) == 1:
            having_it = f"{program()} {having[0]}".strip()
            return f"; it is an option of {having_it}", having_it
        if self.fields and "--set" not in options:
            keys = f"; keys of a point have no dashes: {field or name}=...; options are {', '.join(options)}"
            return keys, self.prog
        return f"; a field is --set {field}=..." if field else f"; there are {', '.join(options)}", self.prog

    @property
    def options(self) -> list[str]:
        """The options by their long names."""
        return [option for action in self._actions for option in action.option_strings if option.startswith("--")]

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            if action.type not in NUMBERS:
                raise
            raise argparse.ArgumentError(action, f"{text!r} is not {NUMBERS[action.type]}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            words = tuple(map(str, action.choices))
            message = f"{value!r} is unknown; there are {', '.join(words)}{did_you_mean(str(value), words)}"
            raise argparse.ArgumentError(action, message)

    def error(self, message: str) -> "None":  # type: ignore[override]
        raise UsageError(f"{message} ({self.prog} --help shows how)")


def _check_ids(words: Sequence[str]) -> None:
    """Raise `UsageError` for a word that names no artifact, such as a mistyped command, whatever follows it."""
    from reproduce.experiment import catalog  # imported here, as only errors need it

    others = (*COMMANDS, "all")
    for id in catalog.named(words):
        if id not in others:
            catalog.load(id, others)


def command_of(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command of two words or one that a command line begins with, and the rest; '' runs artifacts."""
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in GONE:
            raise UsageError(f"{name} went in version 1.1.0 (docs/upgrading.md); try {GONE[name]}")
        if name in COMMANDS:
            return name, arguments[words:]
    return "", arguments


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    module = module_of(name)
    codes, text = options.where_exit_codes_are(), getattr(module, "HELP", "")
    example = f"example:\n  {program()} {EXAMPLES[name]}\n\n" if name in EXAMPLES else ""
    if not name:
        meanings = [f"  {code:>3}  {text}" for code, text in errors.MEANINGS.items()]
        wrapped = [textwrap.fill(text, 80, subsequent_indent=" " * 7) for text in meanings]
        codes = "\n".join(["exit codes:", *wrapped, ""])
    parser = Parser(
        prog=f"{program()} {name}".strip(),
        description=on_a_page(COMMANDS[name]) if name else f"{DESCRIPTION}\n{LISTED}",
        epilog=on_a_page(f"{text}{example}{codes}"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.fields = getattr(module, "FIELDS", ())
    options.add(parser, "debug", "quiet")
    parser.add_argument("--schema", action=options.PrintSchema, command=name)
    module.add_arguments(parser)
    return parser


def on_a_page(text: str, width: int = 80) -> str:
    """The text no wider than a page: paragraphs are filled, indented lines go on indented more.

    A line that begins with the program is a command, whose parts a backslash joins.
    """
    filled: list[str] = []
    for indented, lines in groupby(text.split("\n"), lambda line: line[:1] in (" ", "")):
        for line in lines if indented else [" ".join(lines)]:
            indent = " " * (len(line) - len(line.lstrip()) + 4) if indented else ""
            command = line.split()[:1] == ["reproduce"]
            wrapped = textwrap.wrap(line, width - 2 * command, subsequent_indent=indent, **WHOLE_WORDS) or [""]
            filled += (" \\\n" if command else "\n").join(wrapped).split("\n")
    return "\n".join(filled)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. `--help` raises SystemExit(0), as argparse does.

    What is printed is visible text: what others wrote may hold commands for a terminal. An exception or a warning is
    explained on stderr, in one line. An interrupted command says how to resume: with the same arguments, less --fresh.
    With --debug among the arguments the traceback is shown, too.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    out, err = (stream and VisibleStream(stream) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            try:
                with warnings.catch_warnings():
                    warnings.showwarning = lambda message, *_: _say(f"warning: {' '.join(str(message).split())}")
                    return _run(arguments)
            finally:  # also after --help, which ends with SystemExit: a reader that is gone is noticed here
                if sys.stdout is not None:
                    sys.stdout.flush()
        except BrokenPipeError:  # the reader of our output, such as `head`, has closed the pipe
            _drop_output()
            return errors.DONE
        except KeyboardInterrupt as error:
            return _interrupted(arguments, error)
        except Exception as error:
            if interrupts.received():  # a library turned the interrupt into an exception of its own
                return _interrupted(arguments, KeyboardInterrupt())
            if "--debug" in arguments:
                import traceback

                traceback.print_exc()
            return _explain(error)


def _run(arguments: Sequence[str]) -> int:
    name, rest = command_of(arguments)
    known = argparse.Namespace(program=program_to_type(), command=(*program().split(), *arguments))
    parsed = parser_of(name).parse_args(rest, known)
    options.with_network(parsed)
    code: int = module_of(name).run(parsed)
    return code


def _interrupted(arguments: Sequence[str], error: KeyboardInterrupt) -> int:
    code = interrupts.settle()
    resume = f"{program_to_type()} {shlex.join(a for a in arguments if a != '--fresh')}"
    _say(f"{str(error) or 'interrupted'}; resume with: {resume}")
    return code


def _drop_output() -> None:
    """Point stdout at nothing, so that Python does not fail on the closed pipe once more when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> int:
    if isinstance(error, ReproduceError):
        _say(str(error))
        return error.code
    if isinstance(error, StorageError):
        _say(str(error))
        return errors.UNAVAILABLE
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        _drop_output()
        _say("cannot write standard output: no space left on device")
        return errors.UNAVAILABLE
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # no name that this program gives is
        _say(f"the name {os.fsdecode(error.filename)[:40]}... is too long for a file; needs a shorter one")
        return errors.USAGE
    if isinstance(error, ImportError):
        from ptdp_core.packages import not_installed  # imported here, as only errors need it

        if line := not_installed(error):
            _say(line)
            return errors.UNAVAILABLE
    text = " ".join(str(error).split())
    _say(f"internal error: {type(error).__name__}: {text}; rerun with --debug for the traceback")
    return errors.INTERNAL


def _say(message: str) -> None:
    print(f"reproduce: {message}", file=sys.stderr)
