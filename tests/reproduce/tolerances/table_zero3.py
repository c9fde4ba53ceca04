"""Edges of the claims of Table 2."""

from tests.reproduce.tolerances.edges import between, over, switch

MODELS = ("175B", "530B")
COUNTS = "reproduce.papers.sc21.table_zero3.parameters"
BILLIONS_IN_A_SERVER = 8 * 80 / 16  # 16 bytes of state a parameter


def advantage(key, gains):
    """PTD-P's throughput, x at one key and else by its model and number of GPUs, over ZeRO-3's, 1."""
    return lambda point, x: (
        1.0 if point.series.startswith("ZeRO") else x if point.key == key else gains.get((point.model, point.gpus), 9.0)
    )


def state_of(model):
    """By x, a count of parameters: x billion for one of the models, many for the other."""
    hidden = {"175B": 12288, "530B": 20480}[model]
    return lambda x: lambda config: x * 1e9 if config.hidden == hidden else 1e15


FEWEST, DOUBLED = {("175B", 384): 1.06, ("530B", 560): 1.24}, {("175B", 768): 1.70, ("530B", 1120): 1.70}

EDGES = {
    "fewest_gpus_6_and_24_percent": [
        between("rounds to 6% and 24%", low, high, throughput_per_gpu=advantage(key, FEWEST))
        for key, low, high in (("ptd_p_175b_384", 1.055, 1.065), ("ptd_p_530b_560", 1.235, 1.245))
    ],
    "doubled_gpus_70_percent": [
        between("both round to 70%, 69.5 to 70.5%", 1.695, 1.705, throughput_per_gpu=advantage(key, DOUBLED))
        for key in ("ptd_p_175b_768", "ptd_p_530b_1120")
    ],
    "did_not_fit_on_560": [
        switch("out of memory on 560 GPUs", out=lambda point, x: point.key == "zero_3_530b_560" and x),
        switch(
            "and not on 640",
            out=lambda point, x: point.key == "zero_3_530b_560" or (point.key == "zero_3_530b_640" and not x),
        ),
    ],
    "too_large_for_a_server": [
        over("each exceed the 8 x 80 GB", BILLIONS_IN_A_SERVER, patch={COUNTS: state_of(model)}) for model in MODELS
    ],
}
