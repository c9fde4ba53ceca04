"""Edges of the claims of Section 3.5."""

from tests.reproduce.tolerances.edges import above, at, at_least, below, not_testable, over, within


def few(metric, words):
    """Of ten models x have 1 or 2 layers per checkpoint and the others 3; then six have, of which one has x."""
    return [
        over(
            "for more than half of Table 1",
            5,
            step=1,
            stage_layers=10,
            **{metric: lambda point, x: 1 + point.index % 2 if point.index < x else 3},
        ),
        # five of ten, and of nine if the last has no choice
        below(
            "more than 2 layers in a model chunk",
            2.5,
            step=0.5,
            stage_layers=at(10, index=9),
            **{metric: lambda point, x: 1 if point.index < 5 else 3},
        ),
        *(
            side(
                words,
                value,
                tie=True,
                step=1,
                stage_layers=10,
                **{metric: at(lambda point: 1 if point.index < 6 else 3, index=0)},
            )
            for side, value in ((above, 1), (below, 2))
        ),
    ]


EDGES = {
    "every_1_or_2_by_formula": few("optimal_layers_per_checkpoint", "is 1 or 2"),
    "every_1_or_2_simulated": few("best_layers_per_checkpoint", "at 1 or 2 layers per checkpoint"),
    "checkpoints_and_throughput": not_testable(throughput_spread=0.0),
    "checkpoints_and_memory": above(
        "peak memory varies by more than 2% over the number of checkpoints, in at least one model",
        1.02,
        peak_at_best=1,
        peak_at_worst=at(1, index=3),
    ),
    "total_memory": within(
        "as counted, equals the formula",
        20,
        2e-8,
        step=1e-10,
        input_bytes=1,
        intermediate_bytes=5,
        stage_layers=20,
        optimal_layers_per_checkpoint=2,
        activations_of_a_microbatch=at(20, index=3),
    ),
    "intermediate_much_larger": at_least(
        "at least 10 times its input, in every model", 10.0, input_bytes=1, intermediate_bytes=at(20, index=3)
    ),
    "recomputation_required": [
        over(
            "without recomputation none fits",
            80e9,
            usable_memory=80e9,
            peak_without_recomputation=lambda point, x, key=key: (
                1 if point.p == 1 else x if point.key == key else 100e9
            ),
        )
        for key in ("model_39_1b", "model_1008b")
    ],
}
