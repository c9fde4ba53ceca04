"""Section `startup`: what commands import, wait for and start, because that is what their start-up takes.

Each command runs in a separate process, in which sleeps and child processes are counted. For the light commands so are
executed lines: a function that executes more than `BUSY` of them is listed.
"""

import json
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.exact.quantities import PROBLEM, Entry, Quantities, Section
from results import ROOT

LIGHT = ("list", "--help")
COMMANDS = (*LIGHT, "fig_interleaved")
BUSY = 50_000  # lines, which take some ten milliseconds; functions of the light commands execute far fewer

OURS = ("results", "kernels", "ptdp_core", "benchmarks", "reproduce")

# The project's dependencies. What they import themselves is not listed, as it depends on their versions.
PACKAGES = (
    *("torch", "triton", "numpy", "pandas", "scipy", "matplotlib", "seaborn"),
    *("jinja2", "jsonschema", "fastjsonschema", "rich"),
)

PROBE = """
import collections, json, sys, time
asked = json.loads(sys.argv[1])
events, lines = collections.Counter(), collections.Counter()
def audit(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        events["processes started"] += 1
def counted_sleep(seconds, sleep=time.sleep):
    if seconds >= 0.1:  # shorter ones are polls, as many as it takes
        events["milliseconds of sleep"] += round(1000 * seconds)
    sleep(seconds)
def trace(frame, event, argument):
    if event == "call":
        return trace if frame.f_code.co_filename.startswith(tuple(asked["ours"])) else None
    if event == "line":
        lines[frame.f_globals.get("__name__", "") + "." + frame.f_code.co_qualname] += 1
    return trace
sys.addaudithook(audit)
time.sleep = counted_sleep
before = set(sys.modules)
if asked["trace"]:
    sys.settrace(trace)
sys.argv = ["reproduce", *asked["arguments"]]
out, sys.stdout = sys.stdout, sys.stderr
try:
    from reproduce.cli import main
    code = main()
except SystemExit as exit:
    code = exit.code or 0
sys.settrace(None)
print(json.dumps([code, sorted(set(sys.modules) - before), events, lines]), file=out)
"""


def collect() -> Section:
    """Run each command, and return what it imports and does."""
    return {f"reproduce {command}": _entry(command) for command in COMMANDS}


def _entry(command: str) -> Entry:
    with tempfile.TemporaryDirectory(prefix="ptdp-") as results:
        arguments = [command] if command in LIGHT else [command, "--results", results]
        packages = [f"{ROOT / package}/" for package in OURS]
        asked = {"arguments": arguments, "trace": command in LIGHT, "ours": packages}
        process = subprocess.run(
            [sys.executable, "-c", PROBE, json.dumps(asked)], cwd=ROOT, capture_output=True, text=True, check=False
        )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["it says nothing"]
        return Entry({"order": {PROBLEM: f"reproduce {command}: {lines[-1]}"}})
    return Entry(_quantities(*json.loads(process.stdout)))


def _quantities(code: int, modules: list[str], events: dict[str, int], lines: dict[str, Any]) -> Quantities:
    """Put what `PROBE` prints into quantities: the exit code, imported modules and packages, and what was done."""
    ours = [
        name for name in modules if name.split(".")[0] in ("results", "kernels", "ptdp_core", "benchmarks", "reproduce")
    ]
    foreign = [name for name in PACKAGES if name in modules]
    busy = [f"1 function of more than {BUSY} lines ({name})" for name, count in sorted(lines.items()) if count > BUSY]
    return {
        "parameters": {"exit code": code},
        "imports": {
            "packages": ", ".join(f"1 {name}" for name in foreign),
            "modules": ", ".join(f"1 {name}" for name in ours),
            "what it does": ", ".join([*(f"{count} {name}" for name, count in sorted(events.items())), *busy]),
        },
    }
