"""Section `startup`: what commands import, wait for and start, because that is what their start-up takes.

A few commands run in a separate process each, in which sleeps and child processes are counted, with a cache of
matplotlib's that is there already: making its list of fonts starts processes. For the light commands
so are executed lines: a function that executes more than `BUSY` of them is listed. The help of every command is printed
in a fork of one process, and only what it imports is listed, packages by the module of ours that imports them. So are
the imports of the plugin of pytest.
"""

import os
import subprocess
import sys
import tempfile
from typing import Any

from reproduce.annex.exact import probes, watched
from reproduce.annex.exact.entries import Entry, Quantities, Section, Value
from results import ROOT

LIGHT = ("list", "--help", "describe fig_interleaved")
COMMANDS = (*LIGHT, "fig_interleaved")
PLUGIN = "pytest without --gate"
BUSY = 50_000  # lines, which take some ten milliseconds; functions of the light commands execute far fewer

PROBE = """
import collections, contextlib, json, runpy, sys, time
asked = json.loads(sys.argv[1])
watched = runpy.run_path(asked["watched"])
events, lines = collections.Counter(), {}
def audit(event, arguments):
    if event in ("subprocess.Popen", "os.fork", "os.posix_spawn"):
        events["processes started"] += 1
def counted_sleep(seconds, sleep=time.sleep):
    if seconds >= 0.1:  # shorter ones are polls, as many as it takes
        events["milliseconds of sleep"] += round(1000 * seconds)
    sleep(seconds)
sys.addaudithook(audit)
time.sleep = counted_sleep
before = set(sys.modules)
sys.argv = ["reproduce", *asked["arguments"]]
out, sys.stdout = sys.stdout, sys.stderr
with contextlib.ExitStack() as stack:
    if asked["trace"]:
        lines = stack.enter_context(watched["executing"](tuple(asked["ours"])))
    try:
        from reproduce.cli import main
        code = main()
    except SystemExit as exit:
        code = exit.code or 0
lines = {function: of_function.total() for function, of_function in lines.items()}
print(json.dumps([code, sorted(set(sys.modules) - before), events, lines]), file=out)
"""

# Prints for every command what its help imports besides `before`: modules of ours, and packages by who imports them.
HELP_PROBE = (
    probes.FORKING
    + """
asked = json.loads(sys.argv[1])
sys.argv = ["reproduce"]
from reproduce.cli import main
from reproduce.commands import COMMANDS
before = set(sys.modules)
packages = {}
class Imports:
    def find_spec(name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and not frame.f_globals.get("__name__", "").startswith(tuple(asked["ours"])):
            frame = frame.f_back
        if name in asked["packages"] and frame:
            packages[name] = frame.f_globals["__name__"]
def help_of(command):
    try:
        code = main([*command.split(), "--help"])
    except SystemExit as exit:
        code = exit.code or 0
    return code, sorted(set(sys.modules) - before), packages
sys.meta_path.insert(0, Imports)
print(json.dumps({command: in_fork(help_of, command) for command in COMMANDS}))
"""
)

# What pytest does with our plugin in every project where it is installed; pytest itself need not be.
PLUGIN_PROBE = """
import json, sys
from unittest.mock import MagicMock
class Pytest:
    hookimpl = lambda **options: lambda function: function
    Item = Parser = Config = Session = object
sys.modules["pytest"] = Pytest
before = set(sys.modules)
import ptdp.pytest_gate as plugin
plugin.pytest_addoption(MagicMock())
config = MagicMock()
config.getoption.return_value = False
plugin.pytest_configure(config)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def collect() -> Section:
    """Run each command, and return what it imports and does."""
    with tempfile.TemporaryDirectory(prefix="ptdp-") as cache:
        environment = {**os.environ, "MPLCONFIGDIR": cache}
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], env=environment, check=False)
        section = {name: entry for command in COMMANDS for name, entry in _command(command, cache).items()}
    return {**section, **probes.ask(PLUGIN, PLUGIN_PROBE, None, _plugin), **_helps()}


def _plugin(modules: list[str]) -> Section:
    """What the plugin of pytest imports where the gate is not asked for."""
    imports = {
        "packages of pytest_gate": probes.packages(modules),
        "modules of pytest_gate": probes.ours(modules),
    }
    return {PLUGIN: Entry({"imports": imports})}


def _helps() -> Section:
    """What the help of each command imports."""
    asked = {"ours": [f"{package}." for package in probes.OURS], "packages": probes.PACKAGES}
    return probes.ask(
        "reproduce COMMAND --help",
        HELP_PROBE,
        asked,
        lambda helps: {f"reproduce {command} --help": Entry(_imports(*of)) for command, of in helps.items()},
    )


def _imports(code: int, modules: list[str], packages: dict[str, str]) -> Quantities:
    """Put what `HELP_PROBE` prints of a command into quantities; a package counts for the module that imports it."""
    by_importer: dict[str, Value] = {}
    for package, importer in sorted(packages.items()):
        by_importer[importer] = ", ".join(filter(None, [str(by_importer.get(importer, "")), f"1 {package}"]))
    return {"parameters": {"exit code": code}, "imports": {"modules": probes.ours(modules), **by_importer}}


def _command(command: str, cache: str) -> Section:
    with tempfile.TemporaryDirectory(prefix="ptdp-") as results:
        arguments = command.split() if command in LIGHT else [command, "--results", results]
        folders = [f"{ROOT / package}/" for package in probes.OURS]
        asked = {"arguments": arguments, "trace": command in LIGHT, "ours": folders, "watched": watched.__file__}
        name = f"reproduce {command}"
        return probes.ask(name, PROBE, asked, lambda done: {name: Entry(_quantities(*done))}, MPLCONFIGDIR=cache)


def _quantities(code: int, modules: list[str], events: dict[str, int], lines: dict[str, Any]) -> Quantities:
    """Put what `PROBE` prints into quantities: the exit code, imported modules and packages, and what was done."""
    busy = [f"1 function of more than {BUSY} lines ({name})" for name, count in sorted(lines.items()) if count > BUSY]
    return {
        "parameters": {"exit code": code},
        "imports": {
            "packages": probes.packages(modules),
            "modules": probes.ours(modules),
            "what it does": ", ".join([*(f"{count} {name}" for name, count in sorted(events.items())), *busy]),
        },
    }
