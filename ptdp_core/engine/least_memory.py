"""The least memory that a run needs, against what there is, before anything is made."""

import os
from typing import TYPE_CHECKING

from ptdp_core.config import DTYPES
from ptdp_core.engine.settings import Settings
from ptdp_core.formulas import parameters

if TYPE_CHECKING:
    import torch

STATE_BYTES = 12  # of a parameter, in fp32: its master weight and the two moments of Adam
GIB = 1 << 30


def check_memory(settings: Settings, device: "torch.device", ranks: int) -> None:
    """Raise `ValueError` for a run that cannot fit, of which `ranks` ranks share this machine (on GPUs, each has one).

    This counts what every layout needs: the training state, spread over all ranks that may share it, and the input of
    one layer for one microbatch. So a run that passes may still not fit.
    """
    model, parallel = settings.model, settings.parallel
    replicas = 1 if parallel.sharded_optimizer or parallel.data_parallel == "zero3" else parallel.groups["dp"].number
    shared = STATE_BYTES * parameters(model) // parallel.n
    state = shared * replicas
    layer_input = DTYPES[settings.engine.dtype] * parallel.b * model.seq * model.hidden // (parallel.t * parallel.c)
    if device.type == "cuda":
        import torch

        available, where = torch.cuda.get_device_properties(device).total_memory, "its GPU"
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // ranks
        where = f"this machine's share for each of {ranks} ranks" if ranks > 1 else "this machine"
    if state + layer_input > available:
        fix = "a smaller model, or more machines"
        if shared + layer_input <= available:
            fix = f"sharded_optimizer=true, with which it is {(shared + layer_input) / GIB:,.1f} GiB"
        raise ValueError(
            f"layers={model.layers}, hidden={model.hidden}, vocab={model.vocab}, seq={model.seq}, b={parallel.b} takes "
            f"a rank {(state + layer_input) / GIB:,.1f} GiB at least, of {available / GIB:,.1f} GiB on {where}; needs "
            f"to fit; try {fix}"
        )
