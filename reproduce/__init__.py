"""Reproduces the figures and tables of the SC'21 Megatron-LM paper: `reproduce list` shows them.

    emulation/    virtual accelerators, network namespaces as nodes, shaped links
    experiment/   what an experiment is: artifacts, quantities, claims, the published numbers
    papers/       the papers, a folder each: published numbers, and a module per figure or table
    running/      points in, a Record out: the fidelities and the runner
    output/       a Record shown: tables, figures, timelines, HTML
    analysis/     what is computed over records and clusters: scoring, planning, calibration, comparison
    tools/        text, generation, weights from and to Hugging Face's format
    commands/     one module per subcommand; `cli` parses and dispatches
    interface     for notebooks and scripts: `reproduce.load`, `run`, `simulate`, `plan` (imported when first used)

`kernels`, `benchmarks` and `reproduce` are also names of packages on PyPI, so the folder of ours, a checkout or
`ptdp/_packages` of an installed copy, goes first on the path here. Where even that is not enough, importing this ends
the process with one line (`foreign_packages`): nothing would work, and a traceback would not say why.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reproduce.interface import Record, ReproduceError, load, plan, run, simulate

__all__ = [
    "ROOT",
    "Record",
    "ReproduceError",
    "load",
    "plan",
    "run",
    "simulate",
]
_ROOT = Path(__file__).resolve().parents[1]  # `results.ROOT`, which cannot be imported before the path is right
OWN_PACKAGES = ("results", "kernels", "ptdp_core", "benchmarks")

if sys.path[:1] != [str(_ROOT)]:
    sys.path.insert(0, str(_ROOT))


def foreign_packages() -> dict[str, str]:
    """Those of our packages that would be imported from elsewhere, with that place. Imports none."""
    from importlib.util import find_spec

    foreign = {}
    for name in OWN_PACKAGES:
        try:
            spec = find_spec(name)
        except ValueError:  # already imported, by something that gave it no specification
            foreign[name] = "a module without an origin"
            continue
        places = list(spec.submodule_search_locations or [spec.origin or "?"]) if spec else ["nowhere"]
        if Path(places[0]).resolve() != _ROOT / name:
            foreign[name] = str(places[0])
    return foreign


if _foreign := foreign_packages():
    _name, _place = next(iter(_foreign.items()))
    print(
        f"reproduce: the package {_name!r} would be imported from {_place}, not from this project ({_ROOT}); "
        "remove that package, or what imports it before reproduce starts",
        file=sys.stderr,
    )
    raise SystemExit(3)  # errors.UNAVAILABLE, which cannot be imported now

from results import ROOT  # noqa: E402 - only now is it known to be ours


def __getattr__(name: str) -> Any:
    """The names of the Python interface: imported when first asked for, since importing the package must stay light."""
    if name not in __all__:
        raise AttributeError(f"module 'reproduce' has no attribute {name!r}")
    from reproduce import interface

    return getattr(interface, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
