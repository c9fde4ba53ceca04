"""What the HTML page shows: the records of a results folder, by artifact, with the files beside them."""

import base64
import shlex
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reproduce.experiment.artifact import Artifact
from reproduce.experiment.judging import Accuracy, accuracy
from reproduce.experiment.predictions import time_differences
from reproduce.experiment.results import MissingResultError
from reproduce.output.verdicts import Answer, answer, claims_of
from results import ROOT
from results.records import VERDICTS, Record, digest_file, digest_files, fingerprint

DRAWN = ("figure", "overlay")  # and as they are drawn for a place: not needed beside the figure itself
READ = ("record.json", "table.csv")  # beside pictures; of other files the page has the names
SOURCES = ("reproduce", "ptdp_core", "benchmarks", "results/records", "results/schema")
SOURCE_KINDS = (".py", ".json", ".toml", ".html", ".css", ".js")
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class RecordFiles:
    """A record with its folder and the files beside it; `outdated` if other sources than the present ones made it.

    `artifact`, at the record's scale, is None for what is no artifact's: the accuracy, a plan.
    """

    record: Record
    folder: Path
    files: tuple[Path, ...]
    artifact: Artifact | None = None
    outdated: bool = False

    @property
    def accuracy(self) -> Accuracy | None:
        """How far the points are from the paper's."""
        return accuracy(self.artifact, self.record.points) if self.artifact else None

    @property
    def merit(self) -> str:
        """How far the points are from the paper's, or from what was predicted; or what they show, in a few words."""
        if apart := self.accuracy:
            return "equal to the paper" if apart.equal == apart.count else f"{apart.mean:.1%} from the paper"
        if predicted := time_differences(self.record.points):
            return f"{predicted.mean:.1%} from the prediction"
        if self.artifact is None or self.artifact.merit is None:
            return ""
        try:
            return self.artifact.merit(self.record)
        except MissingResultError:
            return ""

    @cached_property
    def pictures(self) -> dict[Path, dict[str, Any] | str]:
        """Each PNG file with the attributes of its `img`, or with a text that says why it has none.

        Of an artifact these are the files that do not show the figure, which the page draws itself.
        """
        pictures = (path for path in self.files if path.suffix == ".png")
        return {p: png_image(p) for p in pictures if not (self.artifact and p.stem.partition("_")[0] in DRAWN)}

    @property
    def digests(self) -> dict[str, Any]:
        """The files by name, each with a digest of what the page shows of it."""
        read = {path.name: digest_file(path) for path in self.files if path.name in READ}
        shown = {path.name: picture for path, picture in self.pictures.items()}
        return {path.name: None for path in self.files} | read | shown

    @property
    def place(self) -> str:
        """The folder as people know it: 'fig_interleaved/simulated'."""
        return f"{self.folder.parent.name}/{self.folder.name}"


@dataclass(frozen=True)
class ArtifactResults:
    """An artifact with its results, one per fidelity and scale, and the command that runs it."""

    artifact: Artifact
    results: tuple[RecordFiles, ...]
    command: str


@dataclass(frozen=True)
class ReportContents:
    """All that the page shows: artifacts in the order of the catalogue, the accuracy of all of them, and plans.

    `program` and `options` are the words before and after those of a command for the same results.
    """

    entries: tuple[ArtifactResults, ...]
    accuracy: RecordFiles | None
    plans: tuple[RecordFiles, ...]
    program: str
    options: tuple[str, ...]
    paper: str | None = None

    @property
    def shown(self) -> tuple[tuple[ArtifactResults, RecordFiles], ...]:
        """Every result of an artifact, in the paper's order."""
        return tuple((entry, result) for entry in self.entries for result in entry.results)

    @property
    def left_out(self) -> list[str]:
        """A line for each picture that is none."""
        extra = [self.accuracy] if self.accuracy else []
        results = [*(result for _, result in self.shown), *extra]
        return [
            f"{path} {picture}; it is left out"
            for result in results
            for path, picture in result.pictures.items()
            if isinstance(picture, str)
        ]

    @cached_property
    def answer(self) -> Answer:
        """Whether the paper holds, by these results."""
        return answer(claims_of(result.record for _, result in self.shown), paper=self.paper)

    @cached_property
    def digest(self) -> str:
        """A digest of all that the page is made of: the results' files, the program's words and the sources."""
        extra = [self.accuracy] if self.accuracy else []
        results = {result.place: result for result in (*(result for _, result in self.shown), *extra, *self.plans)}
        sources = (path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in SOURCE_KINDS)
        return fingerprint(
            {
                "program": [self.program, *self.options],
                "sources": digest_files(sources),
                "results": {place: result.digests for place, result in results.items()},
            }
        )

    def verdicts(self, entry: ArtifactResults) -> dict[str, int]:
        """How many claims of an artifact have which verdict."""
        verdicts = [judged.claim.verdict for judged in self.answer.claims if judged.artifact.id == entry.artifact.id]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS if verdict in verdicts}

    def command(self, *words: str) -> str:
        """A command of this program for the same results."""
        return f"{self.program} {shlex.join([*words, *self.options])}"


def provenance_of(record: Record) -> dict[str, str | None]:
    """Where a record's numbers come from, by what it is called; what is not known is None or empty."""
    provenance, host, cluster = record.provenance, record.provenance.host, record.provenance.cluster
    changes = {True: ", with changes", False: "", None: ", unknown whether with changes"}[provenance.dirty]
    machine = (
        host.cpu,
        host.logical_cores and f"{host.logical_cores} cores",
        host.os,
        host.machine,
        host.gpus and f"{host.gpu_count} x {', '.join(host.gpus)}",
        host.memory_bytes and f"{host.memory_bytes / 1e9:.0f} GB",
    )
    return {
        "command": shlex.join(provenance.command),
        "started": f"{provenance.started}, took {provenance.duration_s:.1f} s",
        "commit": f"{provenance.commit}{changes}" if provenance.commit else "not known",
        "sources": provenance.code_digest and f"SHA-256 {provenance.code_digest[:16]}…",
        "cluster": f"{cluster.name}, SHA-256 {cluster.digest[:16]}…" if cluster else None,
        "scale": f"{record.scale}; {record.state}",
        "seed": None if provenance.seed is None else str(provenance.seed),
        "machine": ", ".join(str(part) for part in machine if part),
        "versions": ", ".join(f"{name} {version}" for name, version in provenance.versions.items()),
    }


def png_image(path: Path) -> dict[str, Any] | str:
    """The attributes of an `img` with a PNG file inside the page, at half its pixels; or what the file lacks."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not data.startswith(PNG_SIGNATURE) or len(data) < 24:
        return "is not a PNG file"
    width, height = (round(pixels / 2) for pixels in struct.unpack(">II", data[16:24]))
    return {"src": f"data:image/png;base64,{base64.b64encode(data).decode()}", "width": width, "height": height}
