"""`reproduce list`: the artifacts that there are, as plain text, quickly."""

from argparse import ArgumentParser, Namespace
from typing import Any

from benchmarks.records.documents import print_document
from benchmarks.records.errors import DONE
from reproduce.commands.options import add_json
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact

HELP = ""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce list`."""
    add_json(parser)


def run(parsed: Namespace) -> int:
    """Print a line for each artifact."""
    artifacts = [catalog.load(id) for id in catalog.ids()]
    if parsed.json:
        print_document("list", 1, {"artifacts": [summary(artifact) for artifact in artifacts]})
        return DONE
    rows = [("id", "paper", "fidelity", "title")]
    rows += [(a.id, a.label, ", ".join(a.fidelities), a.title) for a in artifacts]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3])
    print("\nreproduce describe ID says more; reproduce ID runs it; reproduce all runs all of them.")
    return DONE


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
