"""Asks processes of their own, so that nothing depends on what this one has imported, cached or compiled."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

from reproduce.annex.exact.entries import PROBLEM, Entry, Section
from results import ROOT

OURS = ("results", "kernels", "ptdp_core", "benchmarks", "reproduce", "ptdp")
# The project's dependencies. What they import themselves is not listed, as it depends on their versions.
PACKAGES = (
    *("torch", "triton", "numpy", "pandas", "scipy", "matplotlib", "seaborn"),
    *("jinja2", "jsonschema", "fastjsonschema", "rich"),
)

# What a program may begin with: `in_fork` calls a function in a fork that prints nothing, and returns its result.
FORKING = """
import json, os, sys
def in_fork(function, *arguments):
    reader, writer = os.pipe()
    if not os.fork():
        sys.stdout = sys.stderr = open(os.devnull, "w")
        os.write(writer, json.dumps(function(*arguments)).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as file:
        written = file.read()
    os.wait()
    return json.loads(written)
"""


def ask(what: str, program: str, asked: Any, of: Callable[[Any], Section], **environment: str) -> Section:
    """What `of` makes of the JSON that a program prints, which has `asked` as JSON in its argument.

    Of a program that fails it is an entry `what`, with the last line of its errors as the reason.
    """
    process = subprocess.run(
        [sys.executable, "-c", program, json.dumps(asked)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["it says nothing"]
        return {what: Entry({"order": {PROBLEM: f"{what}: {lines[-1]}"}})}
    return of(json.loads(process.stdout))


def each(names: Iterable[str]) -> str:
    """Names as a text that counts each."""
    return ", ".join(f"1 {name}" for name in names)


def packages(modules: Iterable[str]) -> str:
    """The project's dependencies among modules, in the order of `PACKAGES`."""
    return each(name for name in PACKAGES if name in modules)


def ours(modules: Iterable[str]) -> str:
    """The modules of the project among these."""
    return each(name for name in modules if name.split(".")[0] in OURS)
