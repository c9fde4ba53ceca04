"""The two copies of the tied embedding, on the first and on the last pipeline stage, are equal to the bit."""

import pytest

from ptdp_core.launch.local import launch
from tests.marks import by_default
from tests.ptdp_core.engine import jobs

FP32 = {"p": 2, "d": 4, "B": 8, "layers": 2, "dtype": "fp32"}
OVERLAPPED = {"data_parallel": "torch", "bucket_mib": 0.002}


@pytest.mark.parametrize(
    "options",
    by_default([{}, OVERLAPPED, {"sharded_optimizer": True}], OVERLAPPED),
    ids=["local", "overlapped", "sharded"],
)
def test_copies_stay_equal(options):
    """Rounded to fp32 over d = 4, where sums depend on their order."""
    parts = launch(jobs.tied_embedding, 8, (FP32 | options,))
    assert all(part == parts[0] for part in parts)
    assert len(set(parts[0])) > 1
