"""Which artifacts there are: those of every paper. Ids are stable words: 'fig_interleaved', 'zerobubble/table_4'."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from traceback import extract_tb
from typing import Any

from reproduce.annex import part, require
from reproduce.experiment import papers, told
from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact
from reproduce.experiment.claims import IN_OUR_WORDS, OURS
from reproduce.experiment.papers import FIRST, Paper
from results.records.errors import UsageError, did_you_mean

_KINDS = ("Table", "Figure", "Section")  # of a label, in the order in which a section has them
# How people write labels: 'Figure 12', 'fig. 12', 'Table1', 'sec-5.9', or only the number.
_WRITTEN = re.compile(r"(?:(fig(?:ure)?|tab(?:le)?|sec(?:tion)?)\.?[ _-]*)?(\d+(?:\.\d+)*)", re.IGNORECASE)


def ids(paper: str | None = None) -> tuple[str, ...]:
    """The ids of all artifacts, or of a paper's: in each paper's order, then those beyond the papers."""
    chosen = papers.papers() if paper is None else (papers.paper(paper),)
    return tuple(id for known in chosen for id in _ids_of(known))


def named_by_files(paper: str) -> tuple[str, ...]:
    """The ids of a paper's artifacts in the order of their files' names, without reading these."""
    known = papers.paper(paper)
    return tuple(map(known.id_of, sorted(known.names)))


def broken() -> tuple[str, ...]:
    """A line for each paper, or file of one, that cannot be read; its artifacts are left out."""
    unread = [_readable(known) for known in papers.papers()]
    return (*papers.broken(), *(line for line in unread if line))


@cache
def _ids_of(paper: Paper) -> tuple[str, ...]:
    if _readable(paper):
        return ()
    artifacts = [_artifact_of(paper, name) for name in paper.names]
    return tuple(artifact.id for artifact in sorted(artifacts, key=_place))


def _place(artifact: Artifact) -> tuple[object, ...]:
    """Where an artifact stands: by its section, then by its label; sentences of the whole paper after its figures."""
    kind, _, number = artifact.label.partition(" ")
    try:
        section = [int(part) for part in artifact.section.split(".")]
    except ValueError:
        return 1 + (artifact.section == NOT_IN_PAPER), artifact.id
    order = int(number) if number.isdigit() else 0
    return 0, section, _KINDS.index(kind) if kind in _KINDS else len(_KINDS), order, artifact.id


@cache
def _readable(paper: Paper) -> str:
    """'' if the files of a paper of one's own can be read, as this project's can be; or what is wrong."""
    if paper.folder.parent in (papers.FOLDER, papers.ANNEX):
        return ""
    try:
        for name in paper.names:
            _artifact_of(paper, name)
    except papers.PaperError as error:
        return str(error)
    return ""


@cache
def _artifact_of(paper: Paper, name: str) -> Artifact:
    """The artifact that a module of the paper defines, or its `paper.toml`, with the claims that are data."""
    artifact: Artifact
    if name in paper.tables:
        artifact = part("papers", "csv_table").artifact(paper, name)
    elif paper.folder.parent == papers.FOLDER:
        artifact = import_module(f"reproduce.papers.{paper.name}.{name}").ARTIFACT
    elif paper.folder.parent == papers.ANNEX:
        artifact = part("papers", f"{paper.name}.{name}").ARTIFACT
    else:
        artifact = _of_own_module(paper, name)
    claims = [*artifact.claims, *told.claims_of(paper, name, artifact)]
    if paper.paraphrased:
        claims = [
            claim if claim.place == OURS else replace(claim, sentence=f"{IN_OUR_WORDS}{claim.sentence}")
            for claim in claims
        ]
    return replace(artifact, paper=paper.name, cluster=paper.cluster, claims=claims)


def _of_own_module(paper: Paper, name: str) -> Artifact:
    """The artifact that a module of one's own paper defines. Raises `PaperError` for whatever is wrong with it."""
    path, own, package = paper.folder / f"{name}.py", str(paper.folder.parent), import_module("reproduce.papers")
    if own not in package.__path__:
        package.__path__.append(own)
    try:
        artifact: Any = getattr(import_module(f"reproduce.papers.{paper.name}.{name}"), "ARTIFACT", None)
        for scale in artifact.scales if isinstance(artifact, Artifact) else ():
            artifact.points(scale)  # here, where what is wrong with them can be named
    except papers.PaperError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else 1
        text = f"{type(error).__name__}: {' '.join(str(error).split())}; needs a module that defines an ARTIFACT"
        raise papers.PaperError(path, line or 1, text) from error
    if not isinstance(artifact, Artifact):
        raise papers.PaperError(path, 1, "defines no ARTIFACT; needs one; a module that begins with _ may do without")
    if artifact.id != (id := paper.id_of(name)):
        line = papers.line_of(path, "ARTIFACT")
        raise papers.PaperError(path, line, f"id={artifact.id!r}; needs the paper's and the module's name; try {id!r}")
    return artifact


def load(id: str, commands: tuple[str, ...] = ()) -> Artifact:
    """The artifact of that id, or of that label of the paper, such as 'Figure 12'. Raises `UsageError` if unknown.

    Without the annex of papers it raises `UnavailableError` there. `commands` are further words that an unknown id may
    have been meant to be.
    """
    id = id_of(id)
    paper, _, name = id.rpartition("/")
    for known in papers.papers():
        if paper in ("", known.name) and name in known.names and (paper or known.id_of(name) == name):
            if problem := _readable(known):
                raise UsageError(problem)
            return _artifact_of(known, name)
    require(papers.ANNEX.name)
    near = did_you_mean(id, (*ids(), *commands))
    raise UsageError(f"unknown artifact {id!r}{near} (reproduce list shows all)")


def id_of(name: str) -> str:
    """The id that a name means: of the artifact with that label ('Figure 12', 'fig12', '12'), or the name itself."""
    written = _WRITTEN.fullmatch(name.strip())
    if not written:
        return name.removeprefix(f"{FIRST}/")
    begins, number = (written[1] or "").lower()[:3], written[2]
    for kind in ("Figure", "Table", "Section"):  # of two that have the number, the figure
        for id in ids(FIRST) if kind.lower().startswith(begins) else ():
            if load(id).label == f"{kind} {number}":
                return id
    return name


def named(words: Iterable[str]) -> list[str]:
    """The ids that the words of a command line name, each once; 'Figure 12' is two words where nobody quotes it."""
    whole: list[str] = []
    for word in words:
        if whole and re.fullmatch(r"[a-z]+\.?", whole[-1], re.IGNORECASE) and _WRITTEN.fullmatch(f"{whole[-1]} {word}"):
            whole[-1] += f" {word}"
        else:
            whole.append(word)
    return list(dict.fromkeys(map(id_of, whole)))
