"""Text to tokens and back, by bytes and by BPE trained on the text, in files that training reads."""

from pathlib import Path

import pytest

from ptdp_core.engine.data import open_tokens
from ptdp_core.engine.errors import EngineUnavailableError
from reproduce.tools.text import bytes_tokenizer, tokenizer_beside, write_corpus

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


@pytest.mark.parametrize("vocab", [256, 300])
def test_a_corpus_decodes_to_its_texts(folder: Path, vocab: int) -> None:
    prefix = folder / "made" / "corpus"
    if vocab > 256:
        pytest.importorskip("tokenizers")
    count, tokens = write_corpus([folder / "texts"], prefix, vocab)
    tokenizer = tokenizer_beside(f"{prefix}.bin", vocab)
    read = documents(prefix)
    assert count == len(read) == 2
    assert tokens == len(open_tokens(prefix).ids) == sum(map(len, read)) + 2
    assert [tokenizer.decode(ids) for ids in read] == list(TEXTS.values())
    assert tokenizer.size <= vocab
    assert max(map(max, read)) < vocab
    if vocab > 256:
        assert tokens < sum(len(text.encode()) for text in TEXTS.values()) / 2
    assert [path.suffix for path in sorted(prefix.parent.iterdir())] == [".bin", ".idx", ".json"][: 2 + (vocab > 256)]


def test_what_is_wrong_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="vocab=100 is out of range; needs 256 <= vocab"):
        write_corpus([folder / "texts"], folder / "x", 100)
    with pytest.raises(ValueError, match=r"TEXT=.* does not exist; needs a file or a folder"):
        write_corpus([folder / "nowhere"], folder / "x")
    (folder / "texts" / "c.bin").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"a source is no text: .*; needs files in UTF-8"):
        write_corpus([folder / "texts"], folder / "x")
    with pytest.raises(EngineUnavailableError, match="cannot be written"):
        write_corpus([folder / "texts" / "a.txt"], Path("/proc/x"))
    with pytest.raises(ValueError, match=r"has no x.tokenizer.json beside it; needs the tokenizer that its tokens"):
        tokenizer_beside(str(folder / "x.idx"), 300)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineUnavailableError, match=r"tokenizers is not .*; try pip install -e '.\[text\]'"):
        write_corpus([folder / "texts" / "a.txt"], folder / "x", 300)
    assert not list(folder.glob("x*"))


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert bytes_tokenizer().decode([104, 105, 255]) == "hi\ufffd"
