"""`reproduce list` and `reproduce describe`: plain text, quickly."""

import json
import shutil
import textwrap
from typing import Any

from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.output.progress import LONG_S, spoken


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


def print_list(as_json: bool) -> int:
    """Print the artifacts that there are."""
    artifacts = [catalog.load(id) for id in catalog.ids()]
    if as_json:
        print(json.dumps([summary(artifact) for artifact in artifacts], indent=1, ensure_ascii=False))
        return 0
    rows = [("id", "paper", "fidelity", "title")]
    rows += [(a.id, a.label, ", ".join(a.fidelities), a.title) for a in artifacts]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) + "  " + row[3])
    print("\nreproduce describe ID says more; reproduce ID runs it; reproduce all runs all of them.")
    return 0


def print_description(id: str, as_json: bool) -> int:
    """Print what an artifact shows and judges."""
    artifact = catalog.load(id)
    if as_json:
        claims = [
            {
                "id": c.id,
                "sentence": c.sentence,
                "place": c.place,
                "fidelity": c.fidelity,
                "tolerance": c.tolerance,
            }
            for c in artifact.claims
        ]
        document = {**summary(artifact), "description": artifact.description, "claims": claims}
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return 0
    print(f"{artifact.id}: {artifact.label} ({artifact.place})")
    print(f"{artifact.title}\n")
    _wrap(artifact.description)
    print()
    for scale in artifact.scales:
        points = artifact.points(scale)
        series = [name for name in dict.fromkeys(point.series for point in points) if name]
        print(f"points     {len(points)} at scale {scale}" + (f": {'; '.join(series)}" if series else ""))
        if scale in artifact.settings:
            _wrap(artifact.settings[scale].description, " " * 11)
    print(f"metric     {artifact.main.heading}")
    for scale in artifact.scales:
        if (own := artifact.at(scale).main.heading) != artifact.main.heading:
            print(f"           {own} at scale {scale}")
    print(f"fidelity   {'; '.join(_fidelities(artifact))} (the first is the default)")
    print(f"tolerance  a point is reproduced within {artifact.tolerance:.0%} of the paper's value")
    if artifact.claims:
        print("\nclaims of the paper that it judges:")
    for claim in artifact.claims:
        print(f"\n  {claim.id}  [{claim.place}; fidelity {claim.fidelity} or better]")
        _wrap(f'"{claim.sentence}"', "    ")
        if claim.tolerance:
            _wrap(f"tolerance: {claim.tolerance}", "    ")
    print(f"\nrun it: reproduce {artifact.id}")
    return 0


def _fidelities(artifact: Artifact) -> list[str]:
    """Each fidelity with its scales, and how long it takes on the default cluster if that is long."""
    from reproduce.running.fidelities import scales_of  # here: `list` is quicker without the simulator

    found = []
    for name in artifact.fidelities:
        scales = {scale: _takes(artifact, name, scale) for scale in scales_of(artifact, name)}
        between = "; " if any(scales.values()) else ", "
        found.append(f"{name} (scale {between.join(scale + takes for scale, takes in scales.items())})")
    return found


def _takes(artifact: Artifact, fidelity: str, scale: str) -> str:
    """', about 2 min': how long a run takes, if that is long."""
    from reproduce.running.fidelities import expected_seconds

    seconds = sum(expected_seconds(fidelity, artifact.points(scale), "selene"))
    return f", about {spoken(seconds)}" if seconds >= LONG_S else ""


def _wrap(text: str, indent: str = "") -> None:
    width = max(40, min(100, shutil.get_terminal_size((100, 24)).columns))
    print(textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False))
