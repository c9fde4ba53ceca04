"""The project as an installation has it: `import ptdp`, then `ptdp.load`, `run`, `simulate`, `plan` (`docs/python.md`).

Our packages are called as their folders in the checkout are, and other projects' have these names, too: `kernels` is
Hugging Face's. An installed copy keeps ours in `ptdp/_packages`, where they overwrite nobody's. That folder goes on the
path when one of our commands starts, or when a name of the interface is first asked for.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reproduce import ROOT, Record, ReproduceError, load, plan, run, simulate

__all__ = ["ROOT", "Record", "ReproduceError", "load", "plan", "run", "simulate"]


def find_packages() -> None:
    """Put an installed copy's packages first on the path, of this process and of those that it starts."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_packages")
    if os.path.isdir(folder) and sys.path[:1] != [folder]:  # a checkout has them beside this package
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])


def __getattr__(name: str) -> Any:
    """The names of the Python interface."""
    if name not in __all__:
        raise AttributeError(f"module 'ptdp' has no attribute {name!r}")
    find_packages()
    import reproduce

    return getattr(reproduce, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
