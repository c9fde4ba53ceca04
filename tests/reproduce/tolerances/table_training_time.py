"""Edges of the claims about training time."""

from types import SimpleNamespace

from tests.reproduce.tolerances.edges import INCONSISTENT, at, at_least, between

MONTH = 365.25 / 12  # days
EQ_4, EQ_3 = (
    f"reproduce.papers.sc21.table_training_time.{name}" for name in ("training_time_approximate", "training_time")
)


def days(key, said):
    """Edges of a run that takes `said` days: with the paper's throughput and with ours, as rounded."""
    ends, x = (said - 0.5, said + 0.5), at(1, key=key)
    times = {"training_time_paper_throughput": said, "training_time": said, "training_time_eq3": said}
    printed = times | {"training_time_paper_throughput": x}
    return (
        between(f"{said} days as rounded", *ends, outside=INCONSISTENT, **printed),
        between(f"rounds to {said} days", *ends, **times | {"training_time": x}),
    )


def seconds(months, tokens, n, rate):
    """Seconds of so many months for 450 billion tokens at 37.6 petaFLOP/s."""
    return months * MONTH * 86400 * (tokens / 450e9) * (37.6e15 / (n * rate))


def eq_4(trillion, count):
    """Eq. (4) that gives so many months for a trillion parameters, and for the model's count of them."""
    return lambda P, tokens, n, rate: seconds(trillion if P == 1e12 else count, tokens, n, rate)


def eq_3(months):
    return lambda model, B, tokens, n, rate: seconds(months, tokens, n, rate)


def rows(**sizes):
    """Table 1 of one model."""
    parameters = {"heads": 1, "B": 1, **sizes}
    return lambda: (SimpleNamespace(label="model", parameters=parameters),)


# Models of which only one of 6h/s, 16lh/(V+s) and 12lh/V is as small as x.
MODELS = (
    (lambda x: rows(layers=100, hidden=round(1000 * x), seq=6000, vocab=1000), 1 / 1000),
    (lambda x: rows(layers=1, hidden=round(350 * x), seq=1600, vocab=4000), 1 / 350),
    (lambda x: rows(layers=1, hidden=round(1000 * x), seq=100, vocab=12000), 1 / 1000),
)

EDGES = {
    "gpt_3_in_34_days_by_eq_4": days("gpt_3_175b", 34)[0],
    "gpt_3_in_34_days": days("gpt_3_175b", 34)[1],
    "trillion_in_84_days_by_eq_4": days("model_1t", 84)[0],
    "trillion_in_84_days": days("model_1t", 84)[1],
    "about_3_months": between(
        "2.7 to 3.3 months of 30.4 days",
        2.7 * MONTH,
        3.3 * MONTH,
        training_time=at(1, key="model_1t"),
        training_time_eq3=1,
    ),
    "about_40_months": between(
        "36 to 44 months, by the paper's eq. (4)",
        36.0,
        44.0,
        outside=INCONSISTENT,
        patch={EQ_4: lambda x: eq_4(x, 99), EQ_3: lambda x: eq_3(99)},
    ),
    "much_larger": [
        at_least(
            "at least ten times larger, for all ten models",
            10.0,
            step=step,
            outside=INCONSISTENT,
            patch={"reproduce.papers.shared.paper_models.table_1": table},
        )
        for table, step in MODELS
    ],
}
