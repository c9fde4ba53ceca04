"""`reproduce schema`: JSON Schemas of what commands read, of their options, and of what they print."""

import argparse
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from reproduce.commands import COMMANDS, module_of, options
from reproduce.experiment.input_schemas import DRAFT, FILES
from results.records.errors import DONE, UsageError, did_you_mean
from results.records.validation import SCHEMAS

OUTPUTS = {"all": "run", "gate exact": "exact"}  # what `--json` prints is called like the command but for these
KINDS = ("file", "options", "output")
HELP = """\
NAME is a command, or cluster. Printed is a JSON Schema (2020-12) of the file that the command reads, where it reads
one, else of its options; --of says which: file, options, or output, the JSON that --json prints. Without a NAME, the
names are listed, with what there is of each.

examples:
  reproduce schema simulate
  reproduce schema plan
  reproduce schema plan --of output

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce schema`."""
    parser.add_argument("name", metavar="NAME", nargs="*", help="a command, as simulate, or cluster")
    parser.add_argument("--of", choices=KINDS, help="what of it (default: its file, else its options)")


def run(parsed: Namespace) -> int:
    """Print the schema; the exit code. Raises `UsageError` for what there is none of."""
    if not parsed.name:
        for name in (*COMMANDS, *(name for name in FILES if name not in COMMANDS)):
            print(f"{name:12}  {', '.join(_kinds(name))}")
        return DONE
    name = " ".join(parsed.name)
    known = (*COMMANDS, *FILES)
    if name not in known:
        raise UsageError(f"unknown command {name!r}{did_you_mean(name, known)}; reproduce schema lists all")
    kinds = _kinds(name)
    if parsed.of and parsed.of not in kinds:
        raise UsageError(f"{name} has no schema of its {parsed.of}; there is {', '.join(kinds)}")
    print(json.dumps(_schema(name, parsed.of or kinds[0]), indent=1))
    return DONE


def _kinds(name: str) -> list[str]:
    """What there is of a name, the file before the options."""
    there = (name in FILES, name in COMMANDS, _output(name).is_file())
    return [kind for kind, has in zip(KINDS, there, strict=True) if has]


def _output(name: str) -> Path:
    return SCHEMAS / f"{OUTPUTS.get(name, name)}-1.schema.json"


def _schema(name: str, kind: str) -> dict[str, Any]:
    if kind == "output":
        document: dict[str, Any] = json.loads(_output(name).read_text(encoding="utf-8"))
        return document
    described = FILES[name]() if kind == "file" else {"title": f"reproduce {name}", **options_schema(name)}
    return {"$schema": DRAFT, **described}


def options_schema(name: str) -> dict[str, Any]:
    """The arguments and options of a command as an object: an option by its long name, an argument by its own."""
    parser = ArgumentParser()
    module_of(name).add_arguments(parser)
    properties, required = {}, []
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            key = _name(action)
            properties[key] = _option(action)
            if action.required:
                required.append(key)
    one_of = [
        {"oneOf": [{"required": [_name(action)]} for action in group._group_actions]}
        for group in parser._mutually_exclusive_groups
        if group.required
    ]
    return {
        "description": COMMANDS[name],
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        **({"allOf": one_of} if one_of else {}),
    }


def _name(action: argparse.Action) -> str:
    longest: str = max(action.option_strings, key=len, default=action.dest)
    return longest.lstrip("-")


def _option(action: argparse.Action) -> dict[str, Any]:
    """The schema of one argument: its type as argparse has it, a text where that is a function of the command's own."""
    kind = "integer" if action.type in (int, options.positive) else "number" if action.type is float else "string"
    value: dict[str, Any] = {"type": kind}
    if isinstance(action, argparse._StoreTrueAction | argparse._StoreFalseAction):
        value = {"type": "boolean"}
    if action.choices is not None:
        value = {"enum": list(action.choices)}
    if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction):
        value = {"type": "array", "items": value} | ({"minItems": 1} if action.nargs == "+" else {})
    if action.help and action.help != argparse.SUPPRESS:
        value["description"] = action.help.replace("%%", "%")
    if isinstance(action.default, bool | int | float | str) and action.default != argparse.SUPPRESS:
        value["default"] = action.default
    return value
