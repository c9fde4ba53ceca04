"""Which artifacts there are: the modules of `reproduce/artifacts/`. Ids are stable words."""

from functools import cache
from importlib import import_module
from pathlib import Path

from benchmarks.records.errors import UsageError, did_you_mean
from reproduce.experiment.artifact import NOT_IN_PAPER, Artifact

_FOLDER = Path(__file__).parents[1] / "artifacts"
_KINDS = ("Table", "Figure", "Section")  # of a label, in the order in which a section has them


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
    """The artifact of that id. Raises `UsageError` if unknown.

    `commands` are further words that an unknown id may have been meant to be.
    """
    if id.isidentifier() and (_FOLDER / f"{id}.py").is_file():
        return _artifact_of(id)
    raise UsageError(f"unknown artifact {id!r}{did_you_mean(id, (*ids(), *commands))} (reproduce list shows all)")
