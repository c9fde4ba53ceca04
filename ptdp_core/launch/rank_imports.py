"""Importing this module imports what every rank needs; the server that forks the ranks does so once for all of them.

No garbage is looked for meanwhile, which would take a quarter of the time. Neither is it later in these modules, which
stay: a rank would look through them again and again, and so get a copy of their memory.
"""

import gc
from contextlib import suppress
from importlib import import_module

MODULES = (
    "torch",
    "torch._dynamo",  # the compiler, which torch imports when the first optimizer is made
    "ptdp_core.engine.trainer",
    "ptdp_core.launch.local",
    "kernels",
)

gc.disable()
for name in MODULES:
    with suppress(ImportError):  # a rank that needs it says so itself
        import_module(name)
gc.freeze()
gc.enable()
