"""Mistakes on a command line, as tables of text: what is typed, and the one line that answers it."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Mistake(NamedTuple):
    """A command line with the files that it names, its exit code, and the line that answers it.

    `words` are how the line begins, where `...` stands for what is not written out.
    """

    line: str
    files: dict[str, str]
    code: int
    words: str


def mistakes(path: Path) -> list[Any]:
    """The cases of a table: a command begins at the margin; indented below are its files, then code and words."""
    cases, line, files = [], "", dict[str, str]()
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.startswith("  file "):
            name, content = text.removeprefix("  file ").split(": ", 1)
            files[name] = json.loads(content)
        elif text.startswith("  "):
            code, _, words = text.strip().partition(":")
            cases.append(pytest.param(Mistake(line, files, int(code), words.strip()), id=line))
        else:
            line, files = text, {}
    return cases


def check(mistake: Mistake, main: Callable[[Sequence[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the current folder is one line on standard error with its code, and changes no file."""
    for name, content in mistake.files.items():
        Path(name).write_bytes(content.encode("latin-1"))
    before = contents()
    program, *words = shlex.split(mistake.line)
    assert main(words) == mistake.code
    shown = capsys.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith(f"{program}: ")
    assert says(line.removeprefix(f"{program}: "), mistake.words), line
    assert "internal error" not in line
    assert "__init__" not in line
    assert shown.out == ""
    assert contents() == before


def says(line: str, words: str) -> bool:
    """Whether a line begins with these words, in which `...` stands for anything."""
    return re.match(".*".join(re.escape(part.strip(" ")) for part in words.split("...")), line) is not None


def contents() -> dict[Path, bytes]:
    """Every file below the current folder."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}
