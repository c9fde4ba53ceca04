"""Figure 5: counts, volumes and slices, and a figure that follows the shard map."""

import re
from dataclasses import replace

import pytest

from ptdp_core.errors import ConfigurationError
from ptdp_core.layout import COLUMN, ROW, layer_parameters
from reproduce.output import theme
from reproduce.papers.sc21 import fig_tensor_partition as module


def drawn(record):
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    return figure, [[text.get_text() for text in axes.texts] for axes in figure.axes]


def swapped(parameters):
    """The layer with rows and columns exchanged in the two matrices of the MLP."""
    other = {COLUMN: ROW, ROW: COLUMN}
    return tuple(q._replace(split=other[q.split]) if ".mlp." in q.name and len(q.shape) == 2 else q for q in parameters)


def test_values(record):
    values = {p.key: {k: m.value for k, m in p.metrics.items()} for p in record.points}
    h, bsh = 12288, 2048 * 12288
    assert values["layers.0.mlp.up.weight"] == {"elements_per_gpu": 4 * h * h // 8, "elements_in_all": 4 * h * h}
    assert values["layers.0.mlp_norm.bias"] == {"elements_per_gpu": h, "elements_in_all": 8 * h}
    assert values["layer_t4"]["elements_per_gpu"] == 8 * bsh * 3 / 4
    assert values["stage_t8"]["elements_per_gpu"] == 8 * 8 * bsh * 7 / 8  # 96 layers over 12 stages
    assert values["stage_t8"]["all_reduces_forward"] == 16
    assert {claim.verdict for claim in record.claims} == {"holds"}


def test_a_t_that_does_not_divide_is_invalid():
    point = module.ARTIFACT.points()[2]
    with pytest.raises(ConfigurationError, match=r"t=7 does not divide 36864 of layers\.0\.attention\.qkv"):
        module.derive(replace(point, parameters={**point.parameters, "t": 7}))


def test_the_figure_shows_slices_and_operators(record):
    figure, (mlp, attention) = drawn(record)
    for block in (mlp, attention):
        # One per rank drawn; they lie on one another.
        assert (block.count("f"), block.count("g")) == (2, 2)
        assert {"rank 0", "rank 7"} <= set(block)
    assert {"12288×6144", "6144×12288"} <= set(mlp)
    assert {"12288×4608", "1536×12288", "12 heads"} <= set(attention)
    assert "2 all-reduces forward, 2 backward" in figure.get_supxlabel()
    whole, part = figure.axes[0].patches[0], figure.axes[0].patches[1]
    assert part.get_width() == pytest.approx(whole.get_width() / 8)
    assert part.get_height() == whole.get_height()


def test_matrices_are_drawn_to_scale(record):
    figure, blocks = drawn(record)
    for axes, texts in zip(figure.axes, blocks, strict=True):
        sizes = [[int(size) for size in re.findall(r"\d+", text)] for text in texts if re.search(r"\d×\d", text)]
        boxes = [(box.get_height(), box.get_width()) for box in axes.patches]
        assert len(boxes) == len(sizes) == 8
        for (part, whole), (outer, inner) in zip(batched(sizes), batched(boxes), strict=True):
            scale = outer[0] / whole[0]
            assert (*outer, *inner) == pytest.approx([scale * size for size in (*whole, *part)])
        assert axes.get_aspect() == 1


def batched(items):
    return list(zip(items[::2], items[1::2], strict=True))


def test_the_figure_changes_with_the_code(record, monkeypatch):
    monkeypatch.setattr(module, "layer_parameters", lambda model, layer: swapped(layer_parameters(model, layer)))
    _, (mlp, _) = drawn(record)
    assert {"1536×49152", "49152×1536"} <= set(mlp)
