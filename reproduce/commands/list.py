"""`reproduce list`: the artifacts that there are, as plain text, quickly."""

import shutil
from argparse import ArgumentParser, Namespace
from typing import Any

from reproduce.commands import options
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES
from results.records.documents import print_document
from results.records.errors import DONE, USAGE


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce list`."""
    options.add(parser, "paper", "json")


def run(parsed: Namespace) -> int:
    """Print a line for each artifact."""
    code = USAGE if options.say_broken() else DONE
    artifacts = [catalog.load(id) for id in catalog.ids(parsed.paper)]
    if parsed.json:
        print_document("list", 1, {"artifacts": [summary(artifact) for artifact in artifacts]})
        return code
    rows = [("id", "paper", "how", "title")]
    for artifact in artifacts:
        place = artifact.label if artifact.label[-1].isdigit() else "-"  # of what has no number
        how = "".join(name[0].upper() for name in artifact.fidelities)
        rows.append((artifact.id, place, how, artifact.title))
    widths, most = (
        [max(map(len, column)) for column in zip(*rows, strict=True)],
        shutil.get_terminal_size((80, 24)).columns,
    )
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        print(line if len(line) <= most else f"{line[: most - 3].rstrip()}...")
    how = ", ".join(f"{name[0].upper()} {name}" for name in FIDELITIES)
    print(f"\nhow: {how}; the first by default")
    print(f"next: {parsed.program} describe ID says more; without describe it runs")
    return code


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
