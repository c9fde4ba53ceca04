"""`reproduce list`: the artifacts that there are, as plain text, quickly."""

import shutil
from argparse import ArgumentParser, Namespace
from typing import Any

from benchmarks.records.documents import print_document
from benchmarks.records.errors import DONE
from reproduce.commands.options import add_json
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce list`."""
    add_json(parser)


def run(parsed: Namespace) -> int:
    """Print a line for each artifact."""
    artifacts = [catalog.load(id) for id in catalog.ids()]
    if parsed.json:
        print_document("list", 1, {"artifacts": [summary(artifact) for artifact in artifacts]})
        return DONE
    rows = [("id", "paper", "how", "title")]
    rows += [(a.id, place(a), "".join(name[0].upper() for name in a.fidelities), a.title) for a in artifacts]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3]
        print(shortened(line, shutil.get_terminal_size((80, 24)).columns))
    how = ", ".join(f"{name[0].upper()} {name}" for name in FIDELITIES)
    print(f"\nhow: {how}; the first by default")
    print("next: reproduce describe ID says more; reproduce ID runs it; reproduce all.")
    return DONE


def place(artifact: Artifact) -> str:
    """Where it is in the paper: 'Figure 12', or '-' for what has no number."""
    return artifact.label if artifact.label[-1].isdigit() else "-"


def shortened(line: str, width: int) -> str:
    """The line, cut to a width."""
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."


def summary(artifact: Artifact) -> dict[str, Any]:
    """What `list --json` says of an artifact."""
    return {
        "id": artifact.id,
        "paper": artifact.label,
        "section": artifact.section,
        "title": artifact.title,
        "fidelities": list(artifact.fidelities),
        "scales": list(artifact.scales),
        "points": {scale: len(artifact.points(scale)) for scale in artifact.scales},
        "claims": [claim.id for claim in artifact.claims],
    }
