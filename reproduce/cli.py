"""The command line: finds the command's module, parses, and ends with an exit code; errors are one line."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from benchmarks.harness.command import Parser, run_command
from benchmarks.records import errors
from reproduce.commands import COMMANDS
from reproduce.commands.options import program

DESCRIPTION = "Reproduce the figures and tables of the SC'21 Megatron-LM paper, and judge its claims."


def module_of(name: str) -> ModuleType:
    """The module of a command; '' is the command without a name, which runs artifacts."""
    return import_module(f"reproduce.commands.{name or 'run'}")


def parser_of(name: str) -> Parser:
    """The parser of a command."""
    module = module_of(name)
    codes = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in errors.MEANINGS.items())
    parser = Parser(
        prog=f"{program()} {name}".strip(),
        description=COMMANDS.get(name, DESCRIPTION),
        epilog=f"{module.HELP}exit codes:\n{codes}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    module.add_arguments(parser)
    return parser


def _dispatch(arguments: Sequence[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else ("", arguments)
    parser = parser_of(name)
    if not arguments:
        parser.print_usage(sys.stderr)
    known = argparse.Namespace(program=program(), command=(*program().split(), *arguments))
    code: int = module_of(name).run(parser.parse_args(rest, known))
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. `--help` raises SystemExit(0), as argparse does."""
    return run_command("reproduce", program(), sys.argv[1:] if arguments is None else arguments, _dispatch)
