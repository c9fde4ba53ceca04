"""Base and head as folders: the commits exported from the repository, which stays as it is, and their environments.

Both run under this interpreter, unless their dependencies differ: then each gets a virtual environment of its own.
"""

import io
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.records.errors import UnavailableError, UsageError
from benchmarks.records.provenance import git_state

BASE, HEAD = "base", "head"


@dataclass(frozen=True)
class Tree:
    """A commit of one side (`BASE`, `HEAD`), unpacked at `folder`, and the interpreter that runs it."""

    side: str
    ref: str
    commit: str
    folder: Path
    python: Path

    def __str__(self) -> str:
        return f"{self.side} {self.ref} ({self.commit[:10]})"


def resolve(project: Path, ref: str) -> str:
    """The commit that `ref` names. Raises `UsageError` for none, `UnavailableError` outside a checkout."""
    if git_state(project)[0] is None:
        raise UnavailableError(
            f"{project} is not a git checkout with a commit (or git is missing); needs one: base is a commit of it"
        )
    found = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if found.returncode:
        raise UsageError(
            f"REF={ref!r} names no commit here; needs a branch, tag or commit of this checkout; "
            "try git fetch, or another REF"
        )
    return found.stdout.decode().strip()


def require_clean(project: Path) -> None:
    """Raise `UsageError` if the sources differ from HEAD: what would be measured has no name."""
    if git_state(project)[1]:
        raise UsageError(
            "the working tree has changes that no commit holds, so that head is not what is in front of you; "
            "needs a clean tree; try git commit, or --head HEAD to measure the last commit without the changes"
        )


def export(project: Path, commit: str, folder: Path) -> None:
    """The files of a commit, in the new folder `folder`."""
    archive = _git(project, "archive", "--format=tar", commit)
    if archive.returncode:
        raise UnavailableError(f"cannot export commit {commit[:10]}: {last_line(archive.stderr)}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


def build(project: Path, refs: Sequence[tuple[str, str, str]], folder: Path) -> dict[str, Tree]:
    """The trees of (side, ref, commit) by side, below `folder`. Raises `UnavailableError` if one does not build."""
    wanted = {}
    for side, ref, commit in refs:
        export(project, commit, folder / side)
        wanted[side] = dependencies(folder / side, f"{side} {ref} ({commit[:10]})")
    same = len(set(wanted.values())) == 1
    trees = {}
    for side, ref, commit in refs:
        python = Path(sys.executable) if same else _environment(folder / f"{side}-venv", wanted[side], side, ref)
        trees[side] = Tree(side, ref, commit, folder / side, python)
    return trees


def dependencies(tree: Path, name: str) -> tuple[str, ...]:
    """What a tree's pyproject.toml depends on, sorted."""
    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return tuple(sorted(map(str, project.get("dependencies", ()))))
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise UnavailableError(f"{name} does not build: its pyproject.toml cannot be used: {error}") from None


def _environment(folder: Path, wanted: Sequence[str], side: str, ref: str) -> Path:
    """The interpreter of a new virtual environment with these requirements."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
    ):
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise UnavailableError(
                f"{side} {ref} does not build: its dependencies differ from the other side's, and its own environment "
                f"cannot be made: {last_line(done.stderr)}"
            )
    return python


def last_line(output: bytes) -> str:
    """The last line that says something, of what a program wrote."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


def _git(project: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *arguments], cwd=project, capture_output=True, stdin=subprocess.DEVNULL, check=False)
