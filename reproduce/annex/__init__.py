"""Annexes: what a reader of the house need not know, each with its purpose, user and exit in docs/annexes.md.

Nothing imports an annex but `part`, by name. A copy without an annex's folder runs all else, and says what is missing.
"""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from results.records.errors import UnavailableError

ANNEXES = {
    "accuracy": "the simulator scored against published runs, its intervals, sealed predictions",
    "bench": "microbenchmarks of operators, messages and steps; all that one GPU should verify",
    "calibrate": "a cluster file from measurements of a machine",
    "compare": "two result sets: what differs, and whether they can be compared",
    "doctor": "what this machine can do, what is missing, how to get it",
    "emulation": "the engine in real time on virtual accelerators and emulated nodes",
    "exact": "all that is deterministic, counted and compared with a committed reference",
    "explain": "why a measured run is slower; what a profiled step's time went to",
    "gate": "is a commit slower? paired launches of two trees, of this project or another",
    "measured": "the engine trains real models on the devices at hand",
    "page": "the simulator as a page in a browser",
    "papers": "papers after the first, what we add to them, papers of your own",
    "plan": "plans as a table, a figure and a record, over numbers of GPUs",
    "plot": "figures drawn again from records: for a publication, beside others, with points of your own",
    "report": "all results as one HTML page",
    "schema": "JSON Schemas of what commands read and of their options",
    "schedules": "pipeline schedules compared, drawn, checked, searched for",
    "weights": "a trained model's weights from and to Hugging Face's format",
}


def require(annex: str) -> None:
    """Raise `UnavailableError` where this copy has no such annex."""
    if find_spec(f"{__name__}.{annex}") is None:
        raise UnavailableError(
            f"this copy has no annex {annex!r} ({ANNEXES[annex]}); needs the folder reproduce/annex/{annex}; "
            "try a whole checkout (docs/annexes.md)"
        )


def part(annex: str, module: str) -> ModuleType:
    """A module of an annex. Raises `UnavailableError` where this copy has no such annex."""
    require(annex)
    return import_module(f"{__name__}.{annex}.{module}")
