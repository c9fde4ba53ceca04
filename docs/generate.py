"""Writes the pages that are made from the project's own data, whenever the site is built (see mkdocs.yml).

The numbers of a cluster, the claims of an experiment and the properties of a record each stand in one place of the
project; these pages show them.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import mkdocs_gen_files
from matplotlib.figure import Figure

from docs.appendix import claims as claims_of_the_appendix
from ptdp_core.simulator.cluster import CLUSTER_FOLDER, NETWORK_FOLDER
from reproduce.annex.accuracy.error_figures import sealed
from reproduce.experiment import catalog
from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact
from reproduce.experiment.claims import quoted
from reproduce.experiment.fidelity import FIDELITIES, folder_name
from reproduce.output.figures import render
from reproduce.output.tables import markdown_table, origin_of, result_table
from reproduce.output.theme import FigureLook, figure_bytes, style
from reproduce.output.verdicts import SHOWN, plain, told
from results.records import VERDICTS, Record, read_record

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
NUMBERS = """# Numbers of the clusters

A cluster is one file in `ptdp_core/simulator/clusters/`. Each number has a unit, a plausible range, a source, and the
data that it was set with: `public` means data sheets and published measurements, `mechanism` what follows from what the
code does; an artifact's name means that published throughputs of that artifact were looked at. A file with a base has
the base's numbers where it gives none. The last ones are networks (`ptdp_core/simulator/networks/`), which have those
between nodes alone.

"""
EXPERIMENTS = """---
hide:
  - toc
---
# Experiments

What can be reproduced, in the paper's order, then what is beyond it. Each has a page with its picture, its table, the
verdicts on its claims, the commands and the time that they took. [The gallery](gallery.md) shows all figures at once.

"""
EXPERIMENT = """---
hide:
  - navigation
---
# {label}: {title}

[All experiments]({up}experiments.md) · [Gallery]({up}gallery.md)

{description}{where}

"""
GALLERY = """---
hide:
  - toc
---
# Gallery

Every figure of the committed results. A picture leads to the page of its experiment; [Reading claims and
figures](reading.md) says what marks, bands and bars mean.

"""
RECORDS = """# Record format

Every result is a JSON document that names its schema, and is checked against it when it is written. The schemas are in
`results/schema/`. A change that an older reader cannot read makes a new version; older versions stay readable. The
metrics of a point are described in [Metrics](metrics.md).

"""
CLAIMS = """
## Claim by claim

The first claim of each figure and table of the paper, as in the appendix. `reproduce verify --expected` holds all
verdicts against the committed ones.

"""
EVALUATION = """
## Every experiment

Made from the artifacts and the committed results in `results/reference/ID/FIDELITY`. Expected are as many points,
and as many claims of each verdict. Time is what that run took on 2 cores, start-up of Python apart; disk is what it
left. Emulation needs Linux, two cores, `ip`, `tc`, and root or user namespaces.

"""
PICTURE = FigureLook(formats=("png",))
LONG_TABLE = 30  # rows; a longer one is folded
# Figures of no experiment, by their names on the site: file or drawing, page that it leads to, what it shows.
FURTHER: dict[str, tuple[str | Callable[[], Figure], str, str]] = {
    "accuracy.png": ("accuracy/figure.png", "accuracy.md", "Simulated against published, all values"),
    "sensitivity.png": ("accuracy/sensitivity.png", "accuracy.md", "How the error moves with each parameter"),
    "blind_score.png": (
        lambda: blind("blind_score", "predicted values", "commit 0212995, before their values were known"),
        "accuracy.md",
        "Figures 13 to 17, predicted before they were read",
    ),
    "blind_modern.png": (
        lambda: blind("blind_modern", "predicted throughput", "commit 0f8de12, clusters as shipped then"),
        "accuracy.md",
        "Public runs on later clusters, predicted blind",
    ),
}


def write(name: str, text: str) -> None:
    """Add a page to the site."""
    with mkdocs_gen_files.open(name, "w") as page:
        page.write(text)


def copy(path: Path, name: str) -> None:
    """Add a file to the site."""
    with mkdocs_gen_files.open(name, "wb") as file:
        file.write(path.read_bytes())


def prose(text: str) -> str:
    """A text as Markdown that shows it as it is, but for LaTeX."""
    return re.sub(r"([\\`*_\[\]])", r"\\\1", escape(plain(text), quote=False))


def cell(text: object) -> str:
    """A text as a cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(headings: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines) + "\n"


def numbers() -> str:
    """All numbers of the shipped clusters, then of networks."""
    text = NUMBERS
    for path in (*sorted(CLUSTER_FOLDER.glob("*.toml")), *sorted(NETWORK_FOLDER.glob("*.toml"))):
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


class Result(NamedTuple):
    """A committed result of an artifact, which is as it shows itself at the scale."""

    artifact: Artifact
    record: Record
    folder: Path
    command: tuple[str, ...]

    @property
    def picture(self) -> str | None:
        """Where the site has the figure; None without one."""
        return f"experiments/{self.artifact.id}/{self.folder.name}.png" if self.artifact.draw else None

    @property
    def took(self) -> str:
        """How long the run took, in seconds."""
        return f"{self.record.provenance.duration_s:.1f} s"


def runs(artifact: Artifact) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each fidelity and scale of an artifact, with the parts of its command, the default first."""
    both = [(fidelity, scale) for fidelity in artifact.fidelities for scale in artifact.scales_at(fidelity)]
    for number, (fidelity, scale) in enumerate(both):
        by_default = scale == next(iter(FIDELITIES[fidelity].scales))
        options = f"--fidelity {fidelity}" + ("" if by_default else f" --scale {scale}")
        yield fidelity, scale, (f"reproduce {artifact.id}", *((options,) if number else ()))


def results(artifact: Artifact) -> list[Result]:
    """The committed results of an artifact, the default first."""
    found = []
    for fidelity, scale, command in runs(artifact):
        folder = REFERENCE / artifact.id / folder_name(fidelity, scale)
        if (folder / "record.json").is_file():
            found.append(Result(artifact.at(scale), read_record(folder / "record.json"), folder, command))
    return found


def verdicts(record: Record) -> str:
    """'holds: 5; too near to call: 1', or '' without claims."""
    counts = Counter(claim.verdict for claim in record.claims)
    return "; ".join(f"{SHOWN[verdict]}: {counts[verdict]}" for verdict in VERDICTS if verdict in counts)


def claims(record: Record) -> str:
    """The claims that a result judges, each with verdict, sentence, reason and tolerance; those that it cannot test."""
    text = ""
    for claim in record.claims:
        if claim.verdict != "not testable here":
            tolerance = f" *Tolerance: {prose(claim.tolerance)}.*" if claim.tolerance else ""
            text += f"- **{told(claim)}**: {quoted(prose(claim.sentence), claim.place)} ({claim.place})\n\n"
            text += f"    {prose(claim.explanation)}.{tolerance}\n\n"
    rest = [claim for claim in record.claims if claim.verdict == "not testable here"]
    if rest:
        text += "**Not testable here**, as they need a better fidelity or other hardware:\n\n"
        text += "".join(f"- `{claim.id}` (needs {claim.fidelity} or better)\n" for claim in rest) + "\n"
    return text


def box(head: str, text: str) -> str:
    """Text in a box; a head that begins with question marks makes one that a click unfolds."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return f"{head}\n\n{lines}\n"


def shown(result: Result) -> str:
    """A result as a part of its experiment's page: picture, table, verdicts, command, time."""
    artifact, record, provenance = result.artifact, result.record, result.record.provenance
    text = f"## {origin_of(record).capitalize()}, scale {record.scale}\n\n"
    if result.picture:
        with mkdocs_gen_files.open(result.picture, "wb") as file:
            file.write(render(artifact, record, PICTURE)["figure.png"])
        beside = f"{artifact.id.rpartition('/')[2]}/{result.folder.name}.png"
        text += f"![{artifact.title}]({beside}){{ width=680 }}\n\n"
    points = markdown_table(result_table(artifact, record)) + "\n"
    is_long = len(record.points) > LONG_TABLE
    text += box(f'??? note "All {len(record.points)} points"', points) if is_long else points + "\n"
    text += claims(record)
    if record.notes:
        text += box('!!! note "About these numbers"', "".join(f"- {prose(note)}\n" for note in record.notes))
    cores = f"{provenance.host.logical_cores} cores" if provenance.host.logical_cores else "a machine not known"
    text += f"```sh\n{' '.join(result.command)}\n```\n\n"
    text += f"{len(record.points)} points took {result.took} on {cores}, start-up of Python apart, on "
    return text + f"{provenance.started[:10]} at commit {(provenance.commit or 'unknown')[:10]}.\n\n"


def experiment(artifact: Artifact) -> str:
    """The page of an artifact."""
    where = "" if artifact.section == NOT_IN_PAPER else f" In the paper: {artifact.place}."
    words = {"label": artifact.label, "title": artifact.title, "description": prose(artifact.description)}
    up = "../" * (1 + artifact.id.count("/"))  # the artifacts of another paper are in a folder of its name
    return EXPERIMENT.format(**words, where=where, up=up) + "".join(map(shown, results(artifact)))


def experiments() -> str:
    """All artifacts, with the verdicts of their default results."""
    rows: list[list[object]] = []
    for artifact in map(catalog.load, catalog.ids()):
        found = results(artifact)
        fidelities = ", ".join(dict.fromkeys(result.record.fidelity for result in found))
        link = f"[{artifact.label}: {artifact.title}](experiments/{artifact.id}.md)"
        rows.append([link, fidelities, verdicts(found[0].record) if found else ""])
    return EXPERIMENTS + table(["experiment", "results", "verdicts on its claims"], rows)


def cards(pictures: list[tuple[str, str, str]]) -> str:
    """A grid of pictures, each with the page that it leads to and its caption in Markdown."""
    items = (
        f"-   [![{caption.replace('**', '')}]({picture}){{ loading=lazy }}]({page})\n\n    {caption}\n\n"
        for picture, page, caption in pictures
    )
    return f'<div class="grid cards gallery" markdown>\n\n{"".join(items)}</div>\n\n'


def blind(id: str, of: str, made: str) -> Figure:
    """The errors of a committed record of predictions, and by what they were made."""
    return sealed(read_record(REFERENCE / id / "record.json"), of, [f"simulated: ptdp at {made}"])


def gallery() -> str:
    """All figures of the committed results."""
    parts: dict[str, list[tuple[str, str, str]]] = {"The paper's figures": [], "Beyond the paper": []}
    for artifact in map(catalog.load, catalog.ids()):
        for result in results(artifact):
            if result.picture:
                timed = FIDELITIES[result.record.fidelity].timed
                beyond = artifact.section == NOT_IN_PAPER
                part = "In real time" if timed else "Beyond the paper" if beyond else "The paper's figures"
                caption = f"**{artifact.label}**, {origin_of(result.record)}: {result.artifact.title}"
                parts.setdefault(part, []).append((result.picture, f"experiments/{artifact.id}.md", caption))
    parts["How far to trust it"] = []
    for name, (drawn, page, caption) in FURTHER.items():
        if isinstance(drawn, str):
            copy(REFERENCE / drawn, f"figures/{name}")
        else:
            with style(PICTURE), mkdocs_gen_files.open(f"figures/{name}", "wb") as file:
                file.write(figure_bytes(drawn(), "png", caption))
        parts["How far to trust it"].append((f"figures/{name}", page, caption))
    return GALLERY + "".join(f"## {title}\n\n{cards(pictures)}" for title, pictures in parts.items())


def needs(fidelity: str, scale: str) -> str:
    """The machine that a run at a fidelity and a scale needs."""
    gpus = FIDELITIES[fidelity].scales[scale]
    if gpus:
        return f"{gpus} GPUs" if gpus > 1 else "1 GPU"
    return {"emulated": "emulation", "measured": "2 cores"}.get(fidelity, "any")


def evaluation() -> str:
    """How each artifact is run at each fidelity and scale, and what the committed result of it holds."""
    rows: list[list[object]] = []
    for artifact in map(catalog.load, catalog.ids()):
        made = {result.command: result for result in results(artifact)}
        for fidelity, scale, command in runs(artifact):
            row: list[object] = [artifact.label, " ".join(f"<nobr>`{part}`</nobr>" for part in command)]
            row.append(needs(fidelity, scale))
            if result := made.get(command):
                expected = "; ".join(filter(None, [f"{len(result.record.points)} points", verdicts(result.record)]))
                size = sum(path.stat().st_size for path in result.folder.iterdir()) / 1e3
                rows.append([*row, result.took, f"{size:.0f} kB", expected])
            elif FIDELITIES[fidelity].scales[scale]:
                rows.append([*row, "", "", "no committed result"])
    first: list[list[object]] = [
        [place, prose(text), f"`reproduce {id}`", f"{took:.1f} s", verdict]
        for place, text, id, verdict, took in claims_of_the_appendix()
    ]
    text = CLAIMS + table(["place", "claim, in short", "command", "time", "expected"], first)
    return text + EVALUATION + table(["experiment", "command", "needs", "time", "disk", "expected"], rows)


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
    """Write all generated pages, with the figures that they show."""
    write("numbers.md", numbers())
    write("experiments.md", experiments())
    for artifact in map(catalog.load, catalog.ids()):
        write(f"experiments/{artifact.id}.md", experiment(artifact))
    write("gallery.md", gallery())
    write("records.md", records())
    with mkdocs_gen_files.open("artifact-evaluation.md", "a") as page:
        page.write(evaluation())


main()
