"""A run that cannot fit is told so before anything is made, with what would make it fit if that is sharding."""

import pytest
import torch

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine import least_memory
from ptdp_core.engine.settings import Settings


@pytest.mark.parametrize(
    ("share", "fix"), [(0.4, "sharded_optimizer=true, with which it is "), (0.05, "a smaller model, or more machines")]
)
def test_the_fix_is_sharding_where_it_suffices(monkeypatch, share, fix):
    model = ModelConfig(4, 1024, 8, 512)
    settings = Settings(model=model, parallel=ParallelConfig(d=4, B=4))
    states = 12 * least_memory.parameters(model)
    values = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": int(4 * share * states)}
    monkeypatch.setattr(least_memory.os, "sysconf", values.__getitem__)
    with pytest.raises(ValueError, match="needs to fit; try " + fix):
        least_memory.check_memory(settings, torch.device("cpu"), 4)
