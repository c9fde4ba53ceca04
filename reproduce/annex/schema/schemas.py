"""The schema of what a command reads, and of its options."""

import argparse
from argparse import ArgumentParser
from typing import Any

from reproduce.annex.schema import input_schemas
from reproduce.commands import COMMANDS, module_of, options


def schema_of(name: str, reads: str | None) -> dict[str, Any]:
    """The schema of a command's file, made by that function of `input_schemas`, else of its options."""
    if reads is not None:
        return {"$schema": input_schemas.DRAFT, **getattr(input_schemas, reads)()}
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
