"""A small repository with the project's simulator and engine, to check commits of."""

import shutil
import subprocess

import numpy as np
import pytest

from reproduce.annex.gate import run
from reproduce.annex.gate.guard import Reading
from results import ROOT

PYPROJECT = """\
[project]
name = "x"
version = "1"
dependencies = ["numpy>=1"]
[tool.ptdp.gate]
workloads = "benchmarks/gated/workloads.py"
suite = ["pipeline_step", "simulator"]
slowed = "benchmarks/gated/slowed.patch"
counts = false
"""


@pytest.fixture(scope="session")
def first_commit(tmp_path_factory):
    """A checkout with one commit, tagged 'first', of what the workload imports; to be copied only."""
    root = tmp_path_factory.mktemp("first")
    for package in ("kernels", "ptdp_core", "benchmarks/gated", "benchmarks/harness"):
        shutil.copytree(ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "results").mkdir()
    for path in (ROOT / "results").glob("*.py"):
        shutil.copy(path, root / "results")
    (root / "benchmarks/__init__.py").touch()
    (root / "pyproject.toml").write_text(PYPROJECT)
    begin(root)
    git(root, "repack", "-a", "-d", "--quiet")  # fewer files to copy
    return root


@pytest.fixture
def repository(first_commit, tmp_path):
    """The test's own copy of that checkout."""
    return shutil.copytree(first_commit, tmp_path / "checkout")


@pytest.fixture
def commit(repository):
    """Write a file of the repository and commit it; the commit."""

    def make(name, text):
        (repository / name).write_text(text)
        commit_all(repository, f"change {name}")
        return git(repository, "rev-parse", "HEAD")

    return make


class MadeUpLauncher:
    """Measures nothing: 0.01 s within 1%, times `slower` for a side and a benchmark."""

    lacks: dict[str, str] = {}  # noqa: RUF012 - set by tests

    def __init__(self, trees, workloads, slowdown):
        self.trees, self.workloads, self.slowdown = trees, workloads, slowdown
        self.rng = np.random.default_rng(0)

    def lacking(self):
        return self.lacks

    def start(self, names):
        pass

    def run(self, side, name):
        return 0.01 * self.slower(side) * float(np.exp(self.rng.normal(0, 0.01)))

    def stop(self):
        pass


@pytest.fixture
def pretend(monkeypatch, repository):
    """The small repository is the project of a command's module, and a made-up launcher measures on a quiet machine.

    Returns a class of the test's own, to be changed by it.
    """

    def use(command, launcher):
        own, run_command = type("Machine", (launcher,), {}), command.run
        monkeypatch.setattr(run, "ProcessLauncher", own)
        monkeypatch.setattr(run, "canary", lambda: Reading(0.01, 1.0))
        monkeypatch.setattr(command, "run", lambda parsed: run_command(parsed, repository))
        return own

    return use


def begin(root):
    """Make a folder a repository with one commit of what it holds, tagged 'first'."""
    git(root, "init", "--quiet", "--template=")
    commit_all(root, "first")
    git(root, "tag", "first")


def commit_all(root, message):
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)


def git(root, *arguments):
    """Run git there, as somebody, whatever the user's configuration says."""
    options = ["user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "init.defaultBranch=main"]
    command = ["git", *(word for option in options for word in ("-c", option)), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
