"""Edges of Figure 2's claims."""

from tests.reproduce.tolerances.edges import at, only


def hops(key):
    """x at one point, elsewhere as the claim says."""
    return at(lambda point: float(point.p > 1), key=key)


EDGES = {
    "n_is_p_t_d": [
        only(
            "exactly, for every row of Table 1",
            gpus,
            step=1,
            gpus=at(lambda point: point.paper.get("gpus", 0), key=key),
        )
        for key, gpus in (("model_1_7b", 32), ("model_145_6b", 1536), ("model_1008b", 3072))
    ],
    "tensor_inside_pipeline_across": [
        only(
            "all tensor-parallel groups inside a node",
            1,
            step=1,
            nodes_per_tensor_group=at(1, key="model_1_7b"),
            pipeline_hops_between_nodes=hops(None),
        ),
        *(
            only(
                "all pipeline hops between nodes", 1.0, nodes_per_tensor_group=1, pipeline_hops_between_nodes=hops(key)
            )
            for key in ("model_39_1b", "model_1008b")
        ),
    ],
}
