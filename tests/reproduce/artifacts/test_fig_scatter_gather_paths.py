"""Figure 9: bytes on every path, and a figure that follows the message plan."""

from ptdp_core.layout import boundary_transfers
from reproduce.output import theme
from reproduce.papers.sc21 import fig_scatter_gather_paths as module

TENSOR = 2 * 2048 * 12288  # bytes of bsh in fp16


def test_values(record):
    values = {p.key: {k: m.value for k, m in p.metrics.items()} for p in record.points}
    assert values["without_t8"] == {
        "bytes_per_path": TENSOR,
        "paths": 8,
        "bytes_between_nodes": 8 * TENSOR,
        "copies_sent": 8,
        "bytes_gathered_per_gpu": 0,
    }
    assert values["with_t8"] == {
        "bytes_per_path": TENSOR / 8,
        "paths": 8,
        "bytes_between_nodes": TENSOR,
        "copies_sent": 1,
        "bytes_gathered_per_gpu": TENSOR * 7 / 8,
    }
    assert {claim.verdict for claim in record.claims} == {"holds"}
    assert len(record.claims) == 6


def test_the_figure_shows_the_messages(record):
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    for axes, text in zip(figure.axes, ("8 × 50.3 MB\n= 403 MB", "8 × 6.3 MB\n= 50 MB"), strict=True):
        shown = [entry.get_text() for entry in axes.texts]
        assert [entry for entry in shown if entry.isdigit()] == [str(rank) for rank in range(16)]
        assert any(text in entry for entry in shown)
    without, scattered = (sum(t.get_text() == "" for t in axes.texts) for axes in figure.axes)
    assert (without, scattered) == (8, 9)  # arrows; with scatter/gather one for the all-gather
    assert "NVLink: all-gather, 44.0 MB\ninto each GPU" in "".join(t.get_text() for t in figure.axes[1].texts)


def test_the_figure_changes_with_the_code(record, monkeypatch):
    def never_scattered(grid, pp, following, dp, elements, scatter_gather):
        return boundary_transfers(grid, pp, following, dp, elements, False)

    monkeypatch.setattr(module, "boundary_transfers", never_scattered)
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    assert any("8 × 50.3 MB\n= 403 MB" in text.get_text() for text in figure.axes[1].texts)
