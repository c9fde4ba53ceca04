"""Edges of Figure 1's claims."""

from tests.reproduce.tolerances.edges import above, at_least, below, between, edge, not_testable, over

MODULE = "reproduce.papers.sc21.fig_model_trend"
MODELS = 6  # points that are models; the paper's line has fewer
YEAR = 365.25 * 86400
S, H, L, A = 2048, 7168, 40, 56
ACTIVATIONS = (2 * S * H * L + S * H * (10 + 24 / 8) + 5 * A * S**2 / 8) / 1e9


def fit_with(slope=1.0, r_squared=1.0):
    """A fit whose slope and R^2 for the models are these, and 1 for the paper's line."""
    return lambda years, sizes: (slope, 0.0, r_squared) if len(years) == MODELS else (1.0, 0.0, 1.0)


EDGES = {
    "exponential_growth": at_least("R^2 >= 0.9", 0.9, patch={f"{MODULE}.fit": lambda x: fit_with(r_squared=x)}),
    "exponential_line": between(
        "within 10% of that of its dashed line", 0.9, 1.1, patch={f"{MODULE}.fit": lambda x: fit_with(slope=x)}
    ),
    "exponential_flops": not_testable(),
    "not_on_one_gpu": over(
        "its fp16 weights alone, 2 bytes a parameter, are more than the 80 GB of one GPU",
        80.0,
        change=lambda point, x: {"billions": x / 2 if point.key == "gpt_3" else 1},
    ),
    "years_on_a_v100": [
        edge(
            "a rate above a V100's peak of 125 teraFLOP/s would contradict it, one below leaves it open",
            125e12 * (1 + sign * 1e-6),
            "nowhere",
            outside=verdict,
            patch={f"{MODULE}.training_time_approximate": lambda x: lambda P, tokens, n, rate: 288 * YEAR * x / rate},
        )
        for sign, verdict in ((-1, "inconclusive"), (1, "contradicted"))
    ],
    # x: bytes a parameter, so that 20 and 25 billion parameters take 80 GB on each of 8 GPUs, with activations
    "up_to_20_billion_in_a_node": [
        below("fit 8 x 80 GB", 8 * (80 - ACTIVATIONS) / 20, patch={f"{MODULE}.STATE_BYTES": lambda x: x}),
        above(
            "just above, a quarter larger, does not",
            8 * (80 - ACTIVATIONS) / 25,
            outside="inconclusive",
            patch={f"{MODULE}.STATE_BYTES": lambda x: x},
        ),
    ],
}
