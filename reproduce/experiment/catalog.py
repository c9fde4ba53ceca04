"""Which artifacts there are: the modules of `reproduce/artifacts/`. Ids are stable words."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact
from results.records.errors import UsageError, did_you_mean

_FOLDER = Path(__file__).parents[1] / "artifacts"
_KINDS = ("Table", "Figure", "Section")  # of a label, in the order in which a section has them
# How people write labels: 'Figure 12', 'fig. 12', 'Table1', 'sec-5.9', or only the number.
_WRITTEN = re.compile(r"(?:(fig(?:ure)?|tab(?:le)?|sec(?:tion)?)\.?[ _-]*)?(\d+(?:\.\d+)*)", re.IGNORECASE)


@cache
def ids() -> tuple[str, ...]:
    """The ids of all artifacts in the paper's order, then those beyond the paper."""
    modules = [path.stem for path in _FOLDER.glob("*.py") if path.stem != "__init__"]
    return tuple(sorted(modules, key=lambda id: _place(_artifact_of(id))))


def _place(artifact: Artifact) -> tuple[object, ...]:
    """Where an artifact stands: by its section, then by its label; sentences of the whole paper after its figures."""
    kind, _, number = artifact.label.partition(" ")
    try:
        section = [int(part) for part in artifact.section.split(".")]
    except ValueError:
        return 1 + (artifact.section == NOT_IN_PAPER), artifact.id
    order = int(number) if number.isdigit() else 0
    return 0, section, _KINDS.index(kind) if kind in _KINDS else len(_KINDS), order, artifact.id


def _artifact_of(id: str) -> Artifact:
    """The artifact that a module defines."""
    artifact: Artifact = import_module(f"reproduce.artifacts.{id}").ARTIFACT
    return artifact


def load(id: str, commands: tuple[str, ...] = ()) -> Artifact:
    """The artifact of that id, or of that label of the paper, such as 'Figure 12'. Raises `UsageError` if unknown.

    `commands` are further words that an unknown id may have been meant to be.
    """
    id = id_of(id)
    if id.isidentifier() and (_FOLDER / f"{id}.py").is_file():
        return _artifact_of(id)
    raise UsageError(f"unknown artifact {id!r}{did_you_mean(id, (*ids(), *commands))} (reproduce list shows all)")


def id_of(name: str) -> str:
    """The id that a name means: of the artifact with that label ('Figure 12', 'fig12', '12'), or the name itself."""
    written = _WRITTEN.fullmatch(name.strip())
    if not written:
        return name
    begins, number = (written[1] or "").lower()[:3], written[2]
    for kind in ("Figure", "Table", "Section"):  # of two that have the number, the figure
        for id in ids() if kind.lower().startswith(begins) else ():
            if _artifact_of(id).label == f"{kind} {number}":
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
