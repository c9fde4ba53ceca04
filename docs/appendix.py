"""The appendix of an artifact evaluation, two pages in the form of SC's AD/AE (`make appendix`, needs pdflatex).

Claims, verdicts and times are those of the committed results; what machines need is that of `artifact-evaluation.md`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from reproduce.experiment import catalog
from reproduce.experiment.fidelity import folder_name
from reproduce.output.tables import LATEX
from reproduce.output.verdicts import SHOWN, plain
from results import ROOT
from results.records import read_record

PAGE = ROOT / "docs" / "artifact-evaluation.md"
LETTERS = 78  # of a sentence in the table
FORM = ROOT / "docs" / "appendix.tex"


def claims() -> Iterator[tuple[str, str, str, str, float]]:
    """The first claim of each figure and table of the paper: place, sentence, id, expected verdict, seconds."""
    for artifact in map(catalog.load, catalog.ids("sc21")):
        record = read_record(
            ROOT
            / "results/reference"
            / artifact.id
            / folder_name(artifact.fidelities[0], artifact.scales[0])
            / "record.json"
        )
        claim = record.claims[0]
        sentence = shorten(plain(claim.sentence), LETTERS, placeholder=" ...")
        yield artifact.label, sentence, artifact.id, SHOWN[claim.verdict], record.provenance.duration_s


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading of the page, code and links as text, escaped for LaTeX."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(heading)
    rows = re.findall(r"^\| (\w.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    bare = (re.sub(r"`|\[([^]]*)\]\([^)]*\)", r"\1", row) for row in rows)
    return [[cell.translate(LATEX).replace("--", "-{}-") for cell in row.split(" | ")] for row in bare]


def latex() -> str:
    """The appendix as a LaTeX document."""
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    filled = {
        "version": [version[1]],
        "needs": [rf"\textbf{{{what}.}} {text}.\par" for what, text in table("# Artifact evaluation")],
        "tasks": [
            rf"$T_{i}$ \textbf{{{what}}}: \texttt{{{command}}}, {time}. Expected: {expected}.\par"
            for i, (what, command, time, expected) in enumerate(table("## The main claims")[1:], 1)
        ],
        "claims": [
            rf"{place} & {text.translate(LATEX)} & \texttt{{{id.translate(LATEX)}}} & {verdict} & {took:.1f} \\"
            for place, text, id, verdict, took in claims()
        ],
    }
    return re.sub("<<(.*)>>", lambda found: "\n".join(filled[found[1]]), FORM.read_text(encoding="utf-8"))


def main(folder: Path) -> None:
    """Write appendix.tex and appendix.pdf into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "appendix.tex").write_text(latex(), encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "appendix.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:])
    print(folder / "appendix.pdf")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ("build",)))
