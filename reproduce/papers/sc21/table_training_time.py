"""Section 5.1: end-to-end training times, from the paper's throughput and from ours."""

from collections.abc import Mapping

from ptdp_core.formulas import parameters, training_time, training_time_approximate
from ptdp_core.simulator import Cluster, Estimate
from reproduce.experiment import published
from reproduce.experiment.claims import Judgement, consistent_if
from reproduce.experiment.results import Results, listed, numbers_of
from reproduce.experiment.sized import model_of
from reproduce.experiment.sweep import Point
from reproduce.experiment.told import told
from reproduce.papers.shared import paper_models
from results.records import Metric

ID = "table_training_time"
DAY_S = 86400
MONTH_D = 365.25 / 12
OURS, OURS_EXACT, THEIRS, THEIRS_EXACT = (
    "training_time",
    "training_time_eq3",
    "training_time_paper_throughput",
    "training_time_paper_throughput_eq3",
)

GPT_3, TRILLION = "gpt_3_175b", "model_1t"
AGGREGATE = 37.6e15


def points() -> tuple[Point, ...]:
    """GPT-3 on 1024 GPUs and the trillion-parameter model on 3072."""
    small, large = published.rows(ID)
    nearest, trillion = (dict(paper_models.table_1()[row].parameters) for row in (6, -1))
    # Not in the paper: as Table 1's nearest model, 145.6 billion parameters.
    gpt_3 = {**nearest, **paper_models.sizes_of("175B"), "B": small["B"]}
    gpt_3["d"] = small["gpus"] // (gpt_3["p"] * gpt_3["t"])
    return tuple(
        Point(
            key=key,
            series="",
            label=row["model"],
            parameters={**published.parameters_of(ID, row), **sizes},
            paper=published.paper_values(ID, row),
        )
        for key, row, sizes in ((GPT_3, small, gpt_3), (TRILLION, large, trillion))
    )


def times(point: Point, estimate: Estimate, cluster: Cluster) -> Mapping[str, Metric]:
    """Days by eq. (4), 8TP/(nX), and by the full count of eq. (3), with our X and with the paper's."""
    model, n, B = estimate.config.model, estimate.config.parallel.n, estimate.config.parallel.B
    tokens = point.parameters["tokens"]
    metrics: dict[str, Metric] = {}
    for names, origin, X in (
        ((OURS, OURS_EXACT), "simulated", estimate.throughput_per_gpu),
        ((THEIRS, THEIRS_EXACT), "derived", point.parameters["paper_throughput"]),
    ):
        seconds = (training_time_approximate(parameters(model), tokens, n, X), training_time(model, B, tokens, n, X))
        metrics |= {name: Metric(s / DAY_S, "d", origin) for name, s in zip(names, seconds, strict=True)}
    return metrics


def notes(results: Results) -> tuple[str, ...]:
    """What is assumed."""
    point = results.point(GPT_3)
    chosen = ", ".join(f"{name}={point.parameters[name]}" for name in ("p", "t", "d", "v", "b"))
    return (
        f"The paper does not say how GPT-3 ran on 1024 GPUs. It is simulated with {chosen}, as Table 1's 145.6 billion "
        "model, so its throughput is not scored against the paper's 140 teraFLOP/s. A month is 30.4 days.",
    )


ARTIFACT = told(__name__, points=points, further=times, notes=notes)


@ARTIFACT.judge
def about_40_months(results: Results) -> Judgement:
    point = results.point(TRILLION)
    model, tokens, B = model_of(point.parameters), point.parameters["tokens"], point.parameters["B"]
    days = {
        f"P = {size}": training_time_approximate(count, tokens, 1, AGGREGATE) / DAY_S
        for size, count in (("1e12", 1e12), (f"{parameters(model) / 1e9:.0f}e9", parameters(model)))
    }
    days["eq. (3)"] = training_time(model, B, tokens, 1, AGGREGATE) / DAY_S
    months = {name: value / MONTH_D for name, value in days.items()}
    text = f"months at 37.6 petaFLOP/s for 450 billion tokens: {listed(months, '{:.1f}')}"
    return consistent_if(
        36 <= months["P = 1e12"] <= 44, text, numbers_of("derived", "d", time_=dict(enumerate(days.values())))
    )


@ARTIFACT.judge
def much_larger(results: Results) -> Judgement:
    least: dict[str, tuple[float, str]] = {}
    short = {}
    for row in paper_models.table_1():
        model = model_of(row.parameters)
        h, layers, s, V = model.hidden, model.layers, model.seq, model.vocab
        ratios = {"6h/s": 6 * h / s, "16lh/(V+s)": 16 * layers * h / (V + s), "12lh/V": 12 * layers * h / V}
        for name, value in ratios.items():
            least[name] = min(least.get(name, (value, row.label)), (value, row.label))
        exact = training_time(model, row.parameters["B"], 1.0, 1, 1.0)
        short[row.label] = training_time_approximate(parameters(model), 1.0, 1, 1.0) / exact - 1
    text = "smallest ratios: " + ", ".join(f"{name} = {value:.1f} ({label})" for name, (value, label) in least.items())
    text += f"; eq. (4) against eq. (3), by model: {listed(short, '{:+.1%}')}"
    ratios = {name: value for name, (value, _) in least.items()}
    return consistent_if(min(ratios.values()) >= 10, text, numbers_of("derived", least=ratios))
