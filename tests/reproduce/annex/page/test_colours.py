"""The colours of the page: told apart by everybody, legible on each surface, light and dark."""

from itertools import combinations
from math import dist

import pytest

from reproduce.output.colours import COLOURS, TEXT, properties

DEUTERANOPIA = ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881))
PROTANOPIA = ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998))


def _linear(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def _lab(linear):
    weights = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.9505, 1.0, 1.089)
    ratios = [
        max(0.0, sum(w * c for w, c in zip(row, linear, strict=True)) / n)
        for row, n in zip(weights, white, strict=True)
    ]
    x, y, z = (r ** (1 / 3) if r > 0.008856 else 7.787 * r + 16 / 116 for r in ratios)
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


def _seen(colour, matrix):
    linear = _linear(colour)
    return [sum(w * c for w, c in zip(row, linear, strict=True)) for row in matrix]


def _contrast(one, other):
    lights = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(_linear, (one, other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_passes_are_told_apart_with_any_colour_vision(scheme):
    passes = {name: COLOURS[name][scheme] for name in ("fwd", "fwd2", "bwd")}
    for matrix in (DEUTERANOPIA, PROTANOPIA):
        for one, other in combinations(passes, 2):
            far = dist(*(_lab(_seen(passes[name], matrix)) for name in (one, other)))
            assert far > 20, (one, other, far)


@pytest.mark.parametrize("scheme", [0, 1])
def test_text_is_legible_and_controls_are_seen(scheme):
    for surface in ("bg", "card"):
        back = COLOURS[surface][scheme]
        for name in TEXT:
            assert _contrast(COLOURS[name][scheme], back) >= 4.5, (name, surface)
        for name in ("edge", "bwd", "fwd"):
            assert _contrast(COLOURS[name][scheme], back) >= 3, (name, surface)
    for name in ("fwd", "bwd", "fwd2", "opt"):
        assert _contrast(COLOURS[f"on-{name}"][scheme], COLOURS[name][scheme]) >= 4.5, name


def test_the_page_has_each_colour_in_both_schemes():
    assert all(properties().count(f"--{name}:") == 2 for name in COLOURS)
