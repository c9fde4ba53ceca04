"""`--schema` of every command: JSON Schemas of what it reads, of its options, and of what it prints."""

import argparse
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from reproduce.annex import part
from results.records.errors import UsageError
from results.records.validation import SCHEMAS

# What `--json` prints is called like the command but for these.
OUTPUTS = {"": "run", "gate exact": "exact", "explain trace": "trace"}
KINDS = ("file", "options", "output")
# The file that a command reads, or that `calibrate` writes: a function of `reproduce.annex.schema.input_schemas`.
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
        kind = values or kinds[0]
        if kind == "output":
            print(_output(self.command).read_text(encoding="utf-8").rstrip())
        else:
            reads = READS[self.command] if kind == "file" else None
            print(json.dumps(part("schema", "schemas").schema_of(self.command, reads), indent=1))
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
