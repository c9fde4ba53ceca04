"""The files beside an artifact's record: its figure, its tables, and further ones of its own."""

from collections.abc import Mapping
from pathlib import Path

from reproduce.experiment.artifact import Artifact
from results.records import Record

FIGURES = ("figure.pdf", "figure.png")
TABLES = ("table.md", "table.tex", "table.csv")


def names(artifact: Artifact, record: Record) -> tuple[str, ...]:
    """The names of the files."""
    further = artifact.files(artifact, record) if artifact.files else ()
    return (*(FIGURES if artifact.draw else ()), *TABLES, *further)


def up_to_date(artifact: Artifact, record: Record, folder: Path) -> bool:
    """Whether the tables in the folder have the columns that the artifact shows now."""
    from reproduce.output.tables import markdown

    return (folder / TABLES[0]).read_bytes() == markdown(artifact, record).encode()


def contents(artifact: Artifact, record: Record) -> Mapping[str, bytes]:
    """The files, by name."""
    from reproduce.output.figures import render
    from reproduce.output.tables import csv_text, latex, markdown

    tables = (markdown(artifact, record), latex(artifact, record), csv_text(record))
    further = artifact.files(artifact, record) if artifact.files else {}
    return {
        **render(artifact, record),
        **dict(zip(TABLES, (text.encode() for text in tables), strict=True)),
        **{name: make() for name, make in further.items()},
    }
