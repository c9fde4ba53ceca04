"""What is listed of a command's start-up."""

import subprocess
from pathlib import Path

import pytest

from reproduce.annex.exact import reference, startup
from reproduce.commands import COMMANDS


def test_the_help_of_every_command_is_checked():
    assert {f"reproduce {command} --help" for command in COMMANDS} <= reference.read("startup").keys()


def test_a_package_counts_for_the_module_that_imports_it():
    command_line = "ptdp_core.launch.command_line"
    packages = {"torch": command_line, "numpy": command_line, "rich": "reproduce.cli"}
    listed = startup._imports(0, ["json", "reproduce.cli"], packages)["imports"]
    assert listed == {"modules": "1 reproduce.cli", command_line: "1 numpy, 1 torch", "reproduce.cli": "1 rich"}


def test_a_help_that_fails_is_an_entry_that_cannot_run(monkeypatch):
    def run(*args, **options):
        return subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: no\n")

    monkeypatch.setattr(subprocess, "run", run)
    (entry,) = startup._helps().values()
    assert entry.problem == "reproduce COMMAND --help: ImportError: no"


@pytest.mark.parametrize("home", ["empty", "of nobody"])
def test_a_fresh_runner_starts_what_the_reference_says(home, monkeypatch, tmp_path):
    """Without matplotlib's list of fonts, which it makes with programs, and where it can keep none."""
    kept = tmp_path if home == "empty" else Path("/proc/none")
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(kept / name.lower()))
    monkeypatch.setattr(startup, "COMMANDS", ("fig_interleaved",))
    monkeypatch.setattr(startup, "_helps", dict)
    entry = startup.collect()["reproduce fig_interleaved"]
    wanted = reference.read("startup")["reproduce fig_interleaved"]["imports"]
    assert entry.quantities["imports"]["what it does"] == wanted["what it does"]
