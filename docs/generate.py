"""Writes the pages that are made from the project's own data, whenever the site is built (see mkdocs.yml).

The numbers of a cluster, the claims of an experiment and the properties of a record each stand in one place of the
project; these pages show them.
"""

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import mkdocs_gen_files

from ptdp_core.simulator.cluster import CLUSTER_FOLDER
from reproduce.experiment import catalog
from reproduce.experiment.fidelity import FIDELITIES, folder_name
from reproduce.output.plain_text import plain
from results.records import read_record

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
NUMBERS = """# Numbers of the clusters

A cluster is one file in `ptdp_core/simulator/clusters/`. Each number has a unit, a plausible range, a source, and the
data that it was set with: `public` means data sheets and published measurements, `mechanism` what follows from what the
code does; an artifact's name means that published throughputs of that artifact were looked at. A file with a base has
the base's numbers where it gives none.

"""
EXPERIMENTS = """# Experiments

What can be reproduced, and what each experiment claims. Verdicts are those of the committed results.

"""
RECORDS = """# Record format

Every result is a JSON document that names its schema, and is checked against it when it is written. The schemas are in
`results/schema/`. A change that an older reader cannot read makes a new version; older versions stay readable. The
metrics of a point are described in [Metrics](metrics.md).

"""
EVALUATION = """
## Every experiment

Made from the artifacts and the committed results in `results/reference/ID/FIDELITY`. Expected are as many points,
and as many claims of each verdict. Time is what that run took on 2 cores, start-up of Python apart; disk is what it
left. Emulation needs Linux, two cores, `ip`, `tc`, and root or user namespaces.

"""
FIGURES = {
    "figure_12.png": "fig_interleaved/simulated",
    "blind_score.png": "blind_score",
    "blind_modern.png": "blind_modern",
}


def write(name: str, text: str) -> None:
    """Add a page to the site."""
    with mkdocs_gen_files.open(name, "w") as page:
        page.write(text)


def cell(text: object) -> str:
    """A text as a cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(headings: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines) + "\n"


def numbers() -> str:
    """All numbers of the shipped clusters."""
    text = NUMBERS
    for path in sorted(CLUSTER_FOLDER.glob("*.toml")):
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        rows: list[list[object]] = [
            [f"`{name}`", f"{p['value']:g}", p["unit"], "{:g} to {:g}".format(*p["range"]), p["source"], p["set_with"]]
            for name, p in data.items()
            if isinstance(p, dict)
        ]
        base = f" Its base is `{data['base']}`." if "base" in data else ""
        text += f"## {path.stem}\n\n{data['description']}.{base}\n\n"
        text += table(["number", "value", "unit", "range", "source", "set with"], rows)
    return text


def experiments() -> str:
    """All artifacts, their claims, and the verdicts of the committed simulated or derived results."""
    text = EXPERIMENTS
    for id in catalog.ids():
        artifact = catalog.load(id)
        text += f"## {artifact.label}: {artifact.title}\n\n`reproduce {id}` (paper: {artifact.place}). "
        text += f"{artifact.description}\n\n"
        for fidelity in artifact.fidelities:
            text += f"- {fidelity}: scale {', '.join(s for s in FIDELITIES[fidelity].scales if s in artifact.scales)}\n"
        verdicts = {}
        for fidelity in ("simulated", "derived"):
            path = REFERENCE / id / fidelity / "record.json"
            if path.is_file():
                verdicts |= {claim.id: claim.verdict for claim in read_record(path).claims}
        rows: list[list[object]] = [
            [
                f'"{plain(claim.sentence)}"',
                claim.place,
                claim.tolerance or "",
                claim.fidelity,
                verdicts.get(claim.id, ""),
            ]
            for claim in artifact.claims
        ]
        text += "\n" + (table(["claim", "place", "tolerance", "needs", "verdict"], rows) if rows else "")
    return text


def needs(fidelity: str, scale: str) -> str:
    """The machine that a run at a fidelity and a scale needs."""
    gpus = FIDELITIES[fidelity].scales[scale]
    if gpus:
        return f"{gpus} GPUs" if gpus > 1 else "1 GPU"
    return {"emulated": "emulation", "measured": "2 cores"}.get(fidelity, "any")


def evaluation() -> str:
    """How each artifact is run at each fidelity and scale, and what the committed result of it holds."""
    rows: list[list[object]] = []
    for id in catalog.ids():
        artifact = catalog.load(id)
        scales = ((f, s) for f in artifact.fidelities for s in FIDELITIES[f].scales if s in artifact.scales)
        for number, (fidelity, scale) in enumerate(scales):
            words = [f"reproduce {id}"]
            if number:  # not the artifact's default
                by_default = scale == next(iter(FIDELITIES[fidelity].scales))
                words.append(f"--fidelity {fidelity}" + ("" if by_default else f" --scale {scale}"))
            command = " ".join(f"<nobr>`{part}`</nobr>" for part in words)
            folder = REFERENCE / id / folder_name(fidelity, scale)
            row: list[object] = [artifact.label, command, needs(fidelity, scale)]
            if (folder / "record.json").is_file():
                record = read_record(folder / "record.json")
                verdicts = Counter(claim.verdict for claim in record.claims)
                expected = [f"{len(record.points)} points", *(f"{verdict}: {n}" for verdict, n in verdicts.items())]
                size = sum(path.stat().st_size for path in folder.iterdir()) / 1e3
                row += [f"{record.provenance.duration_s:.1f} s", f"{size:.0f} kB", "; ".join(expected)]
                rows.append(row)
            elif FIDELITIES[fidelity].scales[scale]:
                rows.append([*row, "", "", "no committed result"])
    return EVALUATION + table(["experiment", "command", "needs", "time", "disk", "expected"], rows)


def properties(schema: dict[str, Any], prefix: str = "") -> list[list[object]]:
    """The properties of a JSON schema's object: path, type, sentence."""
    rows: list[list[object]] = []
    for name, property in schema.get("properties", {}).items():
        kind = property.get("type") or property.get("$ref", "").rpartition("/")[2] or "one of a list"
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        rows.append([f"`{prefix}{name}`", kind, property.get("description", "")])
        rows += properties(property, f"{prefix}{name}.")
        items = property.get("items", {})
        rows += properties(items, f"{prefix}{name}[].")
    return rows


def records() -> str:
    """The properties of every schema in results/schema."""
    text = RECORDS
    for path in sorted(
        (ROOT / "results" / "schema").glob("*.json"), key=lambda path: (not path.name.startswith("record"), path.name)
    ):
        schema = json.loads(path.read_text(encoding="utf-8"))
        text += (
            f"## {path.name.removesuffix('.schema.json')}\n\n{schema.get('description', schema.get('title', ''))}\n\n"
        )
        rows = properties(schema)
        for name, definition in schema.get("$defs", {}).items():
            rows += properties(definition, f"{name}: ")
        text += table(["property", "type", "meaning"], rows)
    return text


def main() -> None:
    """Write all generated pages, and copy the figures that pages show."""
    write("numbers.md", numbers())
    write("experiments.md", experiments())
    write("records.md", records())
    with mkdocs_gen_files.open("artifact-evaluation.md", "a") as page:
        page.write(evaluation())
    for name, folder in FIGURES.items():
        with mkdocs_gen_files.open(f"figures/{name}", "wb") as file:
            file.write((REFERENCE / folder / "figure.png").read_bytes())


main()
