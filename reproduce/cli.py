"""The command line: finds the command's module, parses, and ends with an exit code; errors are one line."""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.harness.command import Parser, run_command
from reproduce.commands import ALIASES, COMMANDS, module_of
from reproduce.commands.options import program
from results.records import errors

DESCRIPTION = "Reproduce the figures and tables of the SC'21 Megatron-LM paper, and judge its claims."


def command_of(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command of two words or one that a command line begins with, and the rest; '' runs artifacts."""
    for words in (2, 1):
        name = " ".join(arguments[:words])
        name = ALIASES.get(name, name)
        if name in COMMANDS:
            return name, arguments[words:]
    return "", arguments


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    module = module_of(name)
    meanings = getattr(module, "MEANINGS", None if name else errors.MEANINGS)
    codes = f"exit codes: {program()} --help lists them\n"
    if meanings:
        codes = "\n".join(["exit codes:", *(f"  {code:>3}  {meaning}" for code, meaning in meanings.items()), ""])
    parser = Parser(
        prog=f"{program()} {name}".strip(),
        description=COMMANDS.get(name, DESCRIPTION),
        epilog=f"{getattr(module, 'HELP', '')}{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress, and of results the shortest form")
    module.add_arguments(parser)
    return parser


def _dispatch(arguments: Sequence[str]) -> int:
    name, rest = command_of(arguments)
    known = argparse.Namespace(program=program(), command=(*program().split(), *arguments))
    parsed = parser_of(name).parse_args(rest, known)
    code: int = module_of(name).run(parsed)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. `--help` raises SystemExit(0), as argparse does."""
    return run_command("reproduce", program(), sys.argv[1:] if arguments is None else arguments, _dispatch)
