"""Reproduces the figures and tables of the SC'21 Megatron-LM paper: `reproduce list` shows them.

    cli            the command line; exit codes in `errors`
    artifacts/     the figures and tables, one module each (types in `artifact`, list in `catalog`)
    runner         runs one: `fidelities/` evaluates its points, `claims` judges, `figures` and `tables` show
    verification/  every quantitative sentence of the paper: `reproduce verify`
    scoring/       how far the simulator is from the paper: `reproduce accuracy`
    predictions    emulated against predicted: tolerances, differences, notes
    calibration/   this machine as a cluster: `reproduce calibrate`
    planning/      the best configuration for a model and GPUs: `reproduce plan`
    reporting/     one HTML page of it all: `reproduce report`
    simulate       what-if estimates for configurations of one's own
    timelines      schedules drawn (`traces`: exported), also as `reproduce timeline`
    check, compare the regression gate; two result sets: `reproduce check`, `reproduce compare`
    plotting/      figures again, from records alone: `reproduce plot`; `doctor`: what this machine can do
    published      the paper's numbers

`kernels`, `benchmarks` and `reproduce` are also names of packages on PyPI. The checkout is the product, so
its folder goes first on the path here. Where even that is not enough, importing this ends the process with one line
(`foreign_packages`): nothing would work, and a traceback would not say why.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN_PACKAGES = ("kernels", "ptdp_core", "benchmarks")

if sys.path[:1] != [str(ROOT)]:
    sys.path.insert(0, str(ROOT))


def foreign_packages() -> dict[str, str]:
    """Those of our packages that would be imported from elsewhere, with that place. Imports none."""
    from importlib.util import find_spec

    found = {}
    for name in OWN_PACKAGES:
        try:
            spec = find_spec(name)
        except ValueError:  # already imported, by something that gave it no specification
            found[name] = "a module without an origin"
            continue
        places = list(spec.submodule_search_locations or [spec.origin or "?"]) if spec else ["nowhere"]
        if Path(places[0]).resolve() != ROOT / name:
            found[name] = str(places[0])
    return found


if _foreign := foreign_packages():
    _name, _place = next(iter(_foreign.items()))
    print(
        f"reproduce: the package {_name!r} would be imported from {_place}, not from this project ({ROOT}); "
        "remove that package, or what imports it before reproduce starts",
        file=sys.stderr,
    )
    raise SystemExit(3)  # errors.UNAVAILABLE, which cannot be imported now
