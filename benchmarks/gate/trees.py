"""Exports the commits of base and head from the repository into folders, and finds an interpreter for each.

The checkout itself is not changed. Both sides run under this interpreter, unless their dependencies differ; then each
gets a virtual environment.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from results.records.errors import NothingSelectedError, UnavailableError, UsageError
from results.records.provenance import git_state

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
    """The commit that `ref` names. Raises `UsageError` if there is none, and `UnavailableError` outside a checkout."""
    if git_state(project)[0] is None:
        raise UnavailableError(
            f"{project} is not a git checkout with a commit (or git is missing); needs one: base is a commit of it"
        )
    parsed = _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if parsed.returncode:
        shallow = _git(project, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        cure = "git fetch --unshallow, as this clone is shallow" if shallow else "git fetch, or another REF"
        raise UsageError(
            f"REF={ref!r} names no commit here; needs a branch, tag or commit of this checkout; try {cure}"
        )
    return parsed.stdout.decode().strip()


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
    commit = resolve(project, base)
    same = commit == resolve(project, head or "HEAD")
    files = ("--", *sources) if sources else ("--untracked-files=no",)
    if head is None and _git(project, "status", "--porcelain", *files).stdout:
        raise UsageError(
            "the working tree has changes that no commit holds, so that head is not what is in front of you; "
            "needs a clean tree; try git commit, or --head HEAD to measure the last commit without the changes"
        )
    if same:
        raise NothingSelectedError(
            f"nothing to measure: base {base} and head are the same commit, {commit[:10]}; "
            "name an older commit as --base, or try the gate on one commit with reproduce gate trials"
        )


def export(project: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit to the new folder `folder`. Raises `UnavailableError` if git cannot."""
    archive = _git(project, "archive", "--format=tar", commit)
    if archive.returncode:
        raise UnavailableError(f"cannot export commit {commit[:10]}: {last_line(archive.stderr)}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")


@contextmanager
def built(project: Path, refs: Mapping[str, str]) -> Iterator[dict[str, Tree]]:
    """The trees of refs by side, in a folder that is gone at the end. Raises as `resolve` and `build` do."""
    resolved = [(side, ref, resolve(project, ref)) for side, ref in refs.items()]
    with tempfile.TemporaryDirectory(prefix="ptdp-gate-") as folder:
        yield build(project, resolved, Path(folder))


def build(project: Path, refs: Sequence[tuple[str, str, str]], folder: Path) -> dict[str, Tree]:
    """Build a tree below `folder` for each (side, ref, commit); return them by side.

    Raises `UnavailableError` if one does not build.
    """
    requirements = {}
    for side, ref, commit in refs:
        export(project, commit, folder / side)
        requirements[side] = dependencies(folder / side, f"{side} {ref} ({commit[:10]})")
    same = len(set(requirements.values())) == 1
    trees = {}
    for side, ref, commit in refs:
        python = Path(sys.executable) if same else _environment(folder / f"{side}-venv", requirements[side], side, ref)
        trees[side] = Tree(side, ref, commit, folder / side, python)
    return trees


def dependencies(tree: Path, name: str) -> tuple[str, ...]:
    """The dependencies in a tree's pyproject.toml, with its engine's, sorted.

    Raises `UnavailableError`, with `name`, for a bad file.
    """
    file = tree / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}) if file.exists() else {}
        engine = project.get("optional-dependencies", {}).get("engine", ())
        return tuple(sorted(map(str, (*project.get("dependencies", ()), *engine))))
    except (OSError, KeyError, ValueError, AttributeError) as error:
        raise UnavailableError(f"{name} does not build: its pyproject.toml cannot be used: {error}") from None


def _environment(folder: Path, requirements: Sequence[str], side: str, ref: str) -> Path:
    """Make a virtual environment with these requirements and return its interpreter."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements],
    ):
        finished = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if finished.returncode:
            raise UnavailableError(
                f"{side} {ref} does not build: its dependencies differ from the other side's, and its own environment "
                f"cannot be made: {last_line(finished.stderr)}"
            )
    return python


def last_line(output: bytes) -> str:
    """The last line of a program's output that is not blank."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"


def _git(project: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(["git", *arguments], cwd=project, capture_output=True, stdin=subprocess.DEVNULL, check=False)
