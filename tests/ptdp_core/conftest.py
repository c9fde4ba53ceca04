"""What tests of schedules share."""

import pytest

from ptdp_core.schedules import register
from ptdp_core.schedules.registry import DEFINITIONS
from tests.ptdp_core.schedules.toys import TOYS


@pytest.fixture(scope="module")
def toys_registered():
    """While a module of tests runs, the schedules of `toys.py` are schedules like any other."""
    for toy in TOYS:
        register(toy)
    yield
    for toy in TOYS:
        del DEFINITIONS[toy.name]
