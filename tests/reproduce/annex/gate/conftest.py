"""A small repository with the project's simulator and engine, to check commits of."""

import shutil
import subprocess

import pytest

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
    git(root, "init", "--quiet", "--template=")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "first")
    git(root, "tag", "first")
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
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", f"change {name}")
        return git(repository, "rev-parse", "HEAD")

    return make


def git(root, *arguments):
    """Run git there, as somebody, whatever the user's configuration says."""
    options = ["user.name=a", "user.email=a@b.c", "commit.gpgsign=false", "init.defaultBranch=main"]
    command = ["git", *(word for option in options for word in ("-c", option)), *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()
