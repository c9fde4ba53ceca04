"""Edges of the claims on sequence parallelism."""

from tests.reproduce.tolerances.edges import at_least, at_most, below, over, switch, under


def with_it(key, otherwise):
    """x at one point with sequence parallelism; elsewhere with it `otherwise`, without it 1."""
    return lambda point, x: 1.0 if not point.sequence_parallel else x if point.key == key else otherwise(point)


NEITHER = "without sequence parallelism neither selective nor no recomputation does"


def fits_unless(key, words, oom_otherwise):
    """Whether one of the points at t = 8 fits decides; the others are as the claim says."""
    too_large = {"selective_off_t8_p8", "none_off_t8_p8"}
    return switch(
        words,
        peak_memory=1,
        out=lambda point, x: (oom_otherwise != bool(x)) if point.key == key else point.key in too_large,
    )


EDGES = {
    "not_slower_in_a_node": [
        at_least(
            "throughput with sequence parallelism is no lower than without it",
            1.0,
            throughput_per_gpu=with_it(key, lambda point: 2.0 if point.t <= 8 else 0.5),
        )
        for key in ("full_on_t8_p8", "selective_on_t4_p16", "none_on_t2_p32")
    ],
    "more_bytes": [
        *(
            over(
                "more tensor-parallel bytes with sequence parallelism than without",
                1.0,
                tensor_traffic=with_it(key, lambda point: 1.1),
            )
            for key in ("full_on_t2_p32", "selective_on_t8_p8", "none_on_t16_p4")
        ),
        below(
            "by a sixth at most with full recomputation",
            1 + 1 / 6,
            tensor_traffic=with_it("full_on_t16_p4", lambda point: 1.1),
        ),
        *(
            at_most("by a quarter at most otherwise", 1.25, tensor_traffic=with_it(key, lambda point: 1.1))
            for key in ("selective_on_t2_p32", "none_on_t8_p8")
        ),
    ],
    "less_memory": [
        *(
            under("is lower without full recomputation", 1.0, peak_memory=with_it(key, lambda point: 0.9))
            for key in ("selective_on_t16_p4", "none_on_t2_p32")
        ),
        at_most("and nowhere higher", 1.0, peak_memory=with_it("full_on_t4_p16", lambda point: 0.9)),
    ],
    "selective_suffices": [
        fits_unless("selective_on_t8_p8", "with sequence parallelism and selective recomputation it fits", True),
        fits_unless("full_off_t8_p8", "and full recomputation does", True),
        fits_unless("selective_off_t8_p8", NEITHER, False),
        fits_unless("none_off_t8_p8", NEITHER, False),
    ],
}
