"""`--schema` of every command: JSON Schemas of what it reads, of its options, and of what it prints."""

import argparse
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from reproduce.commands import COMMANDS, module_of, options
from results.records.errors import UsageError
from results.records.validation import SCHEMAS

# What `--json` prints is called like the command but for these.
OUTPUTS = {"": "run", "gate exact": "exact", "explain trace": "trace"}
KINDS = ("file", "options", "output")
# The file that a command reads, or that `calibrate` writes: a function of `reproduce.experiment.input_schemas`.
READS = {
    "simulate": "points",
    "predict": "points",
    "explain": "point",
    "explain trace": "point",
    "train": "run",
    "calibrate": "cluster",
}


class PrintSchema(argparse.Action):
    """Prints a schema (2020-12) of the command and ends, as --help does. Raises `UsageError` where there is none."""

    def __init__(self, option_strings: list[str], dest: str, command: str, **further: Any) -> None:
        super().__init__(option_strings, dest, nargs="?", choices=KINDS, default=argparse.SUPPRESS, **further)
        self.command = command

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Print the one asked for, else that of the file, else of the options."""
        kinds = _kinds(self.command)
        if values and values not in kinds:
            raise UsageError(f"{parser.prog} has no schema of its {values}; there is {', '.join(kinds)}")
        print(json.dumps(_schema(self.command, values or kinds[0]), indent=1))
        parser.exit()


def add_schema(parser: ArgumentParser, command: str) -> None:
    """--schema [KIND]"""
    kinds = _kinds(command)
    text = f"print a JSON Schema and end: of its {', '.join(kinds)} (default: {kinds[0]})"
    parser.add_argument("--schema", action=PrintSchema, command=command, metavar="OF", help=text)


def _kinds(name: str) -> list[str]:
    """What there is of a command, the file before the options."""
    there = (name in READS, True, _output(name).is_file())
    return [kind for kind, has in zip(KINDS, there, strict=True) if has]


def _output(name: str) -> Path:
    return SCHEMAS / f"{OUTPUTS.get(name, name)}-1.schema.json"


def _schema(name: str, kind: str) -> dict[str, Any]:
    if kind == "output":
        document: dict[str, Any] = json.loads(_output(name).read_text(encoding="utf-8"))
        return document
    from reproduce.experiment import input_schemas  # imported here, as only this needs it

    if kind == "file":
        return {"$schema": input_schemas.DRAFT, **getattr(input_schemas, READS[name])()}
    return {"$schema": input_schemas.DRAFT, "title": f"reproduce {name}".strip(), **options_schema(name)}


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
        "description": COMMANDS.get(name, "artifacts to run, and how"),
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
