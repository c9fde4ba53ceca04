"""What is listed of a command's start-up."""

import subprocess
from typing import Any

import pytest

from benchmarks.exact import reference, startup
from reproduce.commands import COMMANDS


def test_the_help_of_every_command_is_checked() -> None:
    assert {f"reproduce {command} --help" for command in COMMANDS} <= reference.read("startup").keys()


def test_a_package_counts_for_the_module_that_imports_it() -> None:
    command_line = "ptdp_core.launch.command_line"
    packages = {"torch": command_line, "numpy": command_line, "rich": "reproduce.cli"}
    listed = startup._imports(0, ["json", "reproduce.cli"], packages)["imports"]
    assert listed == {
        "modules": "1 reproduce.cli",
        command_line: "1 numpy, 1 torch",
        "reproduce.cli": "1 rich",
    }


def test_a_help_that_fails_is_an_entry_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*args: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: no\n")

    monkeypatch.setattr(subprocess, "run", run)
    (entry,) = startup._helps().values()
    assert entry.problem == "reproduce COMMAND --help: ImportError: no"
