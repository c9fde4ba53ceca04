"""Exports the commits of base and head from the repository into folders, and finds an interpreter for each.

The checkout itself is not changed. Both sides run under this interpreter, unless their dependencies differ; then each
gets a virtual environment, with this interpreter's packages behind its own.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from results.records.errors import NothingSelectedError, UnavailableError, UsageError

BASE, HEAD = "base", "head"
TEMPORARY = ".ptdp-gate"  # a folder of a tree, for temporary files and what makes the project look installed
TELLING = r"(?i)error\b.*?: \S+ \S"  # a line that says what is wrong, behind which pip and compilers say more
NO_CHECKOUT = "{} is not a git checkout with a commit (or git is missing); needs one: base is a commit of it"


@dataclass(frozen=True)
class Tree:
    """A commit of one side (`BASE`, `HEAD`), the folder with the project's files, and the interpreter that runs it."""

    side: str
    ref: str
    commit: str
    folder: Path
    python: Path = Path(sys.executable)

    def __str__(self) -> str:
        return f"{self.side} {self.ref} ({self.commit[:10]})"


def resolve(project: Path, ref: str, side: str = HEAD) -> str:
    """The commit that the `ref` of a side names.

    Raises `UsageError` if there is none, and `UnavailableError` outside a checkout.
    """
    parsed = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if not parsed.returncode:
        return parsed.stdout.decode().strip()
    if _git(project, "rev-parse", "--verify", "HEAD").returncode:
        raise UnavailableError(NO_CHECKOUT.format(project))
    shallow = _git(project, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    cure = "git fetch --unshallow, as this clone is shallow" if shallow else "git log --oneline, or git fetch"
    needed = "a branch, tag or commit of this checkout"
    raise UsageError(f"--{side} {ref!r} names no commit here; needs {needed}; try {cure}")


def require_linux() -> None:
    """Raise `UnavailableError` on a system where processes cannot be forked onto one core, as the gate measures."""
    if sys.platform != "linux":
        raise UnavailableError(
            f"the timing gate needs Linux, and this is {sys.platform}: it forks processes and binds them to one core; "
            "reproduce gate exact runs here"
        )


def require_different(project: Path, sources: Sequence[str], base: str, head: str | None) -> None:
    """Raise `NothingSelectedError` if base and head are the same commit, and `UsageError` if one does not exist.

    Without `head` it is HEAD, and files that differ from it raise `UsageError`, too, as the result could not name what
    was measured: all that git tracks, or in `sources`, if there are any, also new ones.
    """
    commits = [resolve(project, base, BASE), resolve(project, head or "HEAD", HEAD)]
    files = ("--", *sources) if sources else ("--untracked-files=no",)
    if head is None and _git(project, "status", "--porcelain", *files).stdout:
        raise UsageError(
            "the working tree has changes that no commit holds, so that head is not what is in front of you; "
            "needs a clean tree; try git commit, or --head HEAD to measure the last commit without the changes"
        )
    if commits[0] == commits[1]:
        raise NothingSelectedError(
            f"nothing to measure: base {base} and head are the same commit, {commits[0][:10]}; "
            "name an older commit as --base, or try the gate on one commit with reproduce gate trials"
        )


@contextmanager
def built(project: Path, refs: Mapping[str, str], command: str = "") -> Iterator[dict[str, Tree]]:
    """The trees of refs by side, in a folder that is gone at the end. Raises as `build` does."""
    with tempfile.TemporaryDirectory(prefix="ptdp-gate-", ignore_cleanup_errors=True) as folder:
        yield build(project, refs, Path(folder), command)


def build(project: Path, refs: Mapping[str, str], folder: Path, command: str = "") -> dict[str, Tree]:
    """Build a tree below `folder` for each side's ref, by a `command` of the project's if it has one.

    Raises as `resolve` does, and `UnavailableError` if one does not build.
    """
    trees = {}
    for side, ref in refs.items():
        commit = resolve(project, ref, side)
        trees[side] = Tree(side, ref, commit, export(project, commit, folder / side))
    needed = {side: dependencies(tree) for side, tree in trees.items()}
    if len(set(needed.values())) > 1:
        for side, tree in trees.items():
            python = _environment(folder / f"{side}-venv", needed[side], f"{side} {tree.ref}")
            trees[side] = replace(tree, python=python)
    for tree in trees.values():
        install(tree, command)
    return trees


def install(tree: Tree, command: str) -> None:
    """Run what builds a tree's extension modules, and let the project's own version be found (0 if it is dynamic)."""
    if command:
        where = os.environ | {"PATH": f"{tree.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
        done = subprocess.run(
            command, shell=True, cwd=tree.folder, env=where, capture_output=True, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            why = last_line(done.stdout + done.stderr, TELLING)
            raise UnavailableError(f"{tree} does not build: build={command!r} ends with {done.returncode}: {why}")
    if name := _project(tree).get("name"):
        information = tree.folder / TEMPORARY / f"{re.sub('[-_.]+', '_', name)}-0.dist-info"
        information.mkdir(parents=True)
        version = _project(tree).get("version", "0")
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def export(project: Path, commit: str, folder: Path) -> Path:
    """Write the files of a commit below the new folder `folder`; return where in it the project is.

    A commit that has nothing of the project, a part of the repository, leaves that folder empty. Raises
    `UnavailableError` if git cannot.
    """
    folder.mkdir(parents=True)
    apart = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": f"{folder}.index"}
    done = _git(project, "read-tree", "--reset", "-u", "--no-sparse-checkout", commit, **apart)
    if done.returncode:
        raise UnavailableError(f"cannot export commit {commit[:10]}: {last_line(done.stderr)}")
    inside = folder / _git(project, "rev-parse", "--show-prefix").stdout.decode().strip()
    inside.mkdir(parents=True, exist_ok=True)
    return inside


def dependencies(tree: Tree) -> tuple[str, ...]:
    """The dependencies in a tree's pyproject.toml, with its engine's, sorted. Raises `UnavailableError`."""
    try:
        project = _project(tree)
        engine = project.get("optional-dependencies", {}).get("engine", ())
        return tuple(sorted(map(str, (*project.get("dependencies", ()), *engine))))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UnavailableError(f"{tree} does not build: its pyproject.toml cannot be used: {error}") from None


def _project(tree: Tree) -> dict[str, Any]:
    """`[project]` of a tree's pyproject.toml; empty if there is none."""
    file = tree.folder / "pyproject.toml"
    return dict(tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}) if file.exists() else {})


def _environment(folder: Path, requirements: Sequence[str], name: str) -> Path:
    """Make a virtual environment with these requirements and return its interpreter."""
    python = folder / "bin" / "python"
    commands = [[sys.executable, "-m", "venv", str(folder)]]
    if requirements:
        commands += [[str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]]
    for command in commands:
        finished = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if finished.returncode:
            raise UnavailableError(
                f"{name} does not build: its dependencies differ from the other side's, and its own environment "
                f"cannot be made: {last_line(finished.stderr, TELLING)}"
            )
    # What the benchmarks need and the project does not name, such as pytest, is only beside the gate.
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    packages.mkdir(parents=True, exist_ok=True)
    (packages / "ptdp_gate.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def last_line(output: bytes, like: str = "") -> str:
    """The last line of a program's output that is not blank, and like this pattern if there is such a line."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    found = [line for line in lines if re.search(like, line)]
    return (found or lines or ["it says nothing"])[-1]


def _git(project: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    command, where = ["git", *arguments], os.environ | environment
    try:
        return subprocess.run(command, cwd=project, env=where, capture_output=True, stdin=subprocess.DEVNULL)
    except OSError:
        raise UnavailableError(NO_CHECKOUT.format(project)) from None
