"""Marks that several tests share."""

from collections.abc import Iterable
from typing import Any

import pytest


def by_default(values: Iterable[Any], *default: Any) -> list[Any]:
    """The values to parametrize a test with, of which all but these run with `-m slow` only.

    A tuple is the values of several parameters.
    """
    return [
        value
        if value in default
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
        for value in values
    ]
