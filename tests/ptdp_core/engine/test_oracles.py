"""Second opinions from PyTorch's own parallelism: DDP, `parallelize_module` and `torch.distributed.pipelining`."""

import pytest

from ptdp_core.launch.local import launch
from tests.marks import by_default
from tests.ptdp_core.engine import oracles


def compare(job, ranks, **case):
    for worst in launch(job, ranks, (case,), timeout=60):
        assert worst["loss"] < 1e-10
        assert worst["gradient"] < 1e-9


@pytest.mark.parametrize("mode", ["local", "torch"])
def test_ddp(mode):
    compare(oracles.against_ddp, 4, d=4, b=2, B=16, data_parallel=mode, bucket_mib=0.002, recompute="none")


@pytest.mark.parametrize("t", by_default([2, 4], 2))
def test_parallelize_module(t):
    compare(oracles.against_parallelize_module, t, t=t, B=2, b=2, recompute="none")


@pytest.mark.parametrize(("schedule", "v", "m"), [("1f1b", 1, 4), ("gpipe", 1, 4), ("interleaved", 2, 4)])
@pytest.mark.parametrize("exchange", by_default(["blocking", "overlapped"], "blocking"))
def test_pipelining(schedule, v, m, exchange):
    compare(oracles.against_pipelining, 2, p=2, v=v, schedule=schedule, b=1, B=m, exchange=exchange, recompute="none")
