"""`reproduce completion SHELL`: what makes a shell complete commands, artifacts and options (by the library shtab)."""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from benchmarks.harness.registry import BENCHMARKS
from reproduce.commands import COMMANDS, module_of
from reproduce.experiment import catalog
from results.records.errors import DONE

SHELLS = ("bash", "zsh")
NAMES = {"id": (), "ids": (), "names": tuple(BENCHMARKS)}  # arguments that are artifacts, and what else they may be
HELP = """bash:  reproduce completion bash > ~/.local/share/bash-completion/completions/reproduce
zsh:   reproduce completion zsh > a folder of $fpath, as _reproduce
once:  eval "$(reproduce completion bash)"

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce completion`."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(parsed: Namespace) -> int:
    """Print the script."""
    import shtab

    print(shtab.complete(whole_parser(), parsed.shell))
    return DONE


def whole_parser() -> ArgumentParser:
    """All commands, and the artifacts as commands that take the options of a run, in one parser."""
    parser = ArgumentParser("reproduce")
    commands = parser.add_subparsers()
    second_words: dict[str, argparse._SubParsersAction[ArgumentParser]] = {}
    artifacts = {id: catalog.load(id).title for id in catalog.ids()}
    for name, text in (COMMANDS | artifacts).items():
        first, _, second = name.partition(" ")
        if second and first not in second_words:
            above = commands.choices.get(first) or commands.add_parser(first, help=f"{first} {second} ...")
            second_words[first] = above.add_subparsers()
        place = second_words[first] if second else commands
        described = place.add_parser(second or first, help=text)
        described.add_argument("-q", "--quiet", action="store_true")
        module_of("" if name in artifacts else name).add_arguments(described)
        _complete_names(described, tuple(artifacts))
    return parser


def _complete_names(parser: ArgumentParser, artifacts: Sequence[str]) -> None:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _complete_names(inner, ())
        elif action.dest in NAMES and not action.option_strings:
            action.choices = (*artifacts, *NAMES[action.dest])
