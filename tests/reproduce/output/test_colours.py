"""One place for colours: what is drawn, shown or printed has none of its own."""

import re

from reproduce.output import colours
from results import ROOT

HEX = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")
KINDS = (".py", ".css", ".js", ".mjs", ".html")
FOLDERS = ("results", "kernels", "ptdp_core", "benchmarks", "reproduce", "docs")


def test_no_other_source_has_a_colour_of_its_own():
    own = {
        path.relative_to(ROOT).as_posix(): found
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in KINDS and "vendor" not in path.parts and "reference" not in path.parts
        if (found := HEX.findall(path.read_text(encoding="utf-8")))
    }
    assert own.keys() == {"reproduce/output/colours.py", "docs/style.css"}


def test_the_documents_have_the_colours_of_the_table():
    style = (ROOT / "docs" / "style.css").read_text(encoding="utf-8")
    assert dict(re.findall(r"(--[a-z-]+): (#[0-9a-f]+);", style)) == colours.DOCUMENTS
