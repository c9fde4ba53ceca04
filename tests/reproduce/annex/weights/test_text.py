"""Text to tokens, in files that training reads."""

from pathlib import Path

import pytest

from ptdp_core.engine.data import open_tokens
from ptdp_core.engine.errors import EngineUnavailableError
from reproduce.annex.weights.text import write_corpus

TEXTS = {"a.txt": "the cat sat on the mat. the cat saw the rat. " * 20, "b.txt": "Größe, naïve, 猫 — and 🐈\n"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    return tmp_path


def documents(prefix: Path) -> list[list[int]]:
    """The documents of a token file, each up to its end."""
    parts: list[list[int]] = [[]]
    for token in open_tokens(prefix).ids.tolist():
        if token == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    assert parts.pop() == []
    return parts


def test_a_corpus_has_its_texts_as_bytes(folder: Path) -> None:
    prefix = folder / "made" / "corpus"
    count, tokens = write_corpus([folder / "texts"], prefix)
    read = documents(prefix)
    assert count == len(read) == 2
    assert tokens == len(open_tokens(prefix).ids) == sum(map(len, read)) + 2
    assert [bytes(ids).decode() for ids in read] == list(TEXTS.values())
    assert [path.suffix for path in sorted(prefix.parent.iterdir())] == [".bin", ".idx"]


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"TEXT=.* does not exist; needs a file or a folder"):
        write_corpus([folder / "nowhere"], folder / "x")
    (folder / "texts" / "c.bin").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"a source is no text: .*; needs files in UTF-8"):
        write_corpus([folder / "texts"], folder / "x")
    with pytest.raises(EngineUnavailableError, match="cannot be written"):
        write_corpus([folder / "texts" / "a.txt"], Path("/proc/x"))
    assert not list(folder.glob("x*"))
