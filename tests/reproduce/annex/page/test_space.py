"""The folder that `reproduce explore --space` writes: the page, and what a static Space asks of its README."""

import fnmatch
import re
from pathlib import Path

import pytest

from reproduce.annex.page import build
from reproduce.annex.page.build import Built
from reproduce.cli import main
from results.records.errors import DONE, USAGE

# https://huggingface.co/docs/hub/spaces-config-reference
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
SHORT = 60  # letters of a short description


@pytest.fixture
def space(tmp_path, monkeypatch):
    """A Space's folder, with a snapshot of Python that is none: making one takes node and seconds."""
    monkeypatch.setattr(build, "_snapshot", lambda sources, pyodide: b"snapshot")
    assert main(["explore", "--out", str(tmp_path / "space"), "--space"]) == DONE
    return tmp_path / "space"


def test_the_readme_configures_a_static_space_that_shows_the_page(space):
    _, head, text = (space / "README.md").read_text(encoding="utf-8").split("---\n")
    settings = dict(re.findall(r"^(\w+): (.+)$", head, re.MULTILINE))
    assert settings["sdk"] == "static"
    assert (space / settings["app_file"]).is_file()
    assert {settings["colorFrom"], settings["colorTo"]} <= COLOURS
    assert len(settings["short_description"]) <= SHORT
    assert text.strip()


def test_files_that_are_no_text_are_kept_outside_of_git(space):
    patterns = [line.split()[0] for line in (space / ".gitattributes").read_text(encoding="utf-8").splitlines()]
    libraries = (file for asset in build.ASSETS.values() for file in asset["files"])
    written = {path.name for path in space.rglob("*") if path.is_file()} | {Path(file).name for file in libraries}
    texts = (".html", ".js", ".mjs", ".css", ".json", ".md", ".ts", ".gitattributes")
    outside = [name for name in written if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    assert {name for name in written if not name.endswith(texts)} == set(outside) >= {build.SNAPSHOT_FILE}


def test_without_the_option_the_folder_is_no_space(tmp_path, monkeypatch):
    monkeypatch.setattr("reproduce.annex.page.command_explore.build", lambda *_, **__: Built(0, None))
    assert main(["explore", "--out", str(tmp_path)]) == DONE
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_files_is_left_alone_and_an_earlier_page_is_written_again(space, tmp_path, capsys):
    assert main(["explore", "--out", str(space), "--space"]) == DONE
    mine = tmp_path / "mine" / "index.html"
    mine.parent.mkdir()
    mine.write_text("mine")
    capsys.readouterr()
    assert main(["explore", "--out", str(mine.parent)]) == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert "holds index.html, which is none of ours; needs a new or empty folder" in line
    assert mine.read_text() == "mine"
    assert list(mine.parent.iterdir()) == [mine]
