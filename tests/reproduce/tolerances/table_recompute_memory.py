"""Edges of the claims of Section 3.5."""

from tests.reproduce.tolerances.edges import above, at, below


def few(metric, words):
    """Of ten models x have 1 or 2 layers per checkpoint and the others 3; then six have, of which one has x."""
    return [
        above(
            "for more than half of Table 1",
            5,
            tie=False,
            step=1,
            stage_layers=1,
            **{metric: lambda point, x: 1 + point.index % 2 if point.index < x else 3},
        ),
        *(
            side(
                words,
                value,
                tie=True,
                step=1,
                stage_layers=1,
                **{metric: at(lambda point: 1 if point.index < 6 else 3, index=0)},
            )
            for side, value in ((above, 1), (below, 2))
        ),
    ]


EDGES = {
    "every_1_or_2_by_formula": few("optimal_layers_per_checkpoint", "is 1 or 2"),
    "every_1_or_2_simulated": few("best_layers_per_checkpoint", "at 1 or 2 layers per checkpoint"),
    "checkpoints_and_throughput": [
        below(
            "throughput varies by at most 1% in every model",
            0.01,
            tie=True,
            throughput_spread=at(0, index=3),
            peak_at_best=1,
            peak_at_worst=2,
        ),
        above(
            "peak memory by more than 1% in at least one",
            1.01,
            throughput_spread=0,
            peak_at_best=1,
            peak_at_worst=at(1, index=3),
        ),
    ],
    "intermediate_much_larger": [
        above(
            "at least 5 times its input, in every model",
            5.0,
            tie=True,
            input_bytes=1,
            intermediate_bytes=at(10, index=3),
        )
    ],
    "recomputation_required": [
        above(
            "no model of Table 1 with p > 1 fits",
            80e9,
            tie=False,
            usable_memory=80e9,
            peak_without_recomputation=lambda point, x, key=key: (
                1 if point.p == 1 else x if point.key == key else 100e9
            ),
        )
        for key in ("model_39_1b", "model_1008b")
    ],
}
