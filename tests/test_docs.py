"""The guides are true: their Python blocks run, in order, and print what the page shows under them, up to numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NUMBER = re.compile(r" *\d+(\.\d+)?")
BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def masked(text: str) -> str:
    """The text without its numbers: those of a simulation change with its model."""
    return NUMBER.sub(" #", text)


@pytest.mark.parametrize("page", ["python.md"])
def test_the_blocks_of_a_page_print_what_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = BLOCKS.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    capsys.readouterr()
    for code, shown in blocks:
        exec(compile(code, page, "exec"), names)
        assert masked(capsys.readouterr().out) == masked(shown), code
