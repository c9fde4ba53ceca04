"""Zero Bubble's tables: schedules executed with messages, rules that were searched, and what the rates imply."""

from fractions import Fraction

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import build, execute, names
from ptdp_core.schedules.registry import exists
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.papers import zero_bubble
from reproduce.annex.papers.zero_bubble import Rule, StageCosts, Times
from reproduce.annex.papers.zerobubble import table_4, table_5, table_8
from reproduce.experiment import catalog, coverage, papers, published
from reproduce.experiment.claims import OURS

QUICK = Times(30, 20, 10, 0)


@pytest.fixture(scope="module")
def rates():
    """Derived over published rates of Table 5's models on 8 ranks, by schedule and metric."""
    found = {}
    for point in table_5.points():
        if point.parameters["p"] == 8:
            derived = table_5.derive(point)
            for metric, value in point.paper.items():
                found.setdefault((point.series, metric), []).append(derived[metric] - value.value)
    return found


@pytest.mark.parametrize("name", [name for name in names() if exists(name, 4, 8, 1)])
def test_without_messages_it_is_the_exact_execution(name):
    schedule = build(name, 4, 8, 1)
    exact = execute(schedule, 30, 30, 10)
    spans = [row[-1].end - row[0].start for row in exact]
    assert zero_bubble.execute(schedule, QUICK) == StageCosts(max(spans), max(row[-1].end for row in exact))


def test_a_message_delays_the_first_pass_of_every_later_rank():
    schedule = build("1f1b", 4, 1, 1)
    times = Times(30, 20, 10, 7)
    assert zero_bubble.execute(schedule, times) == StageCosts(4 * 60 + 6 * 7, 4 * 60 + 6 * 7)


def test_an_order_that_waits_for_itself_is_refused():
    schedule = build("1f1b", 2, 2, 1)
    rows = (schedule.ranks[0], tuple(reversed(schedule.ranks[1])))
    with pytest.raises(ValueError, match="ranks wait for each other"):
        zero_bubble.execute(type(schedule)("wrong", schedule.placement, 2, rows, schedule.exchanges), QUICK)


@pytest.mark.parametrize("schedule", ["1F1B", "ZB-H1", "ZB-H2", "ZB-1p"])
def test_rates_of_table_5_have_all_four_digits(rates, schedule):
    assert all(abs(difference) <= 0.00005 for difference in rates[schedule, "bubble_rate"])


def test_rates_of_1f1b_i_have_them_without_one_ring_of_messages(rates):
    assert all(abs(difference) <= 0.00005 for difference in rates["1F1B-I", table_5.EARLIER])
    assert all(difference > 0.0005 for difference in rates["1F1B-I", "bubble_rate"])


def test_searched_rules_reach_zb_2p(rates):
    """But for 0.0433 of the first row, where they come to 0.0436."""
    first, *others = rates["ZB-2p", "bubble_rate"]
    assert first == pytest.approx(0.0003, abs=0.0001)
    assert all(difference <= 0 for difference in others)


@pytest.mark.parametrize("k", [1, 2])
def test_a_rule_keeps_its_memory(k):
    """In-flight microbatches, and the share of those whose W waits, never exceed k*p."""
    p, m, share = 4, 16, 0.4
    schedule = zero_bubble.ruled(p, m, k, Times(30, 29, 19, 1), share, Rule("IFW", 1, 2 / 3, 1))
    for row in schedule.ranks:
        kept = Fraction(0)
        for action in row:
            kept += {"F": 1, "I": Fraction("0.4") - 1, "W": -Fraction("0.4")}[action.kind]
            assert kept <= k * p
        assert kept == 0


def test_the_search_finds_what_is_kept():
    row = {"model": "1.5B", "p": 8, "m": 24}
    kept = table_5.found()["searched"][table_5.key_of(row)]["ZB-2p"]["rule"]
    share = table_5.weight_memory(table_5.model_of("1.5B"))
    rules = [rule for rule in zero_bubble.RULES if rule.order == kept[0] and rule.ahead == kept[1]]
    least, rule = zero_bubble.search(8, 24, 2, table_5.times_of(row), share, rules)
    assert list(rule) == kept
    assert least == pytest.approx(0.0436, abs=0.00005)


def test_the_times_kept_give_the_rates_they_were_found_from():
    for point in table_8.points():
        if point.series in ("1F1B", "ZB-H1") and point.parameters["m"] <= 64:
            assert table_5.derive(point)["bubble_rate"] == pytest.approx(point.paper["bubble_rate"].value, abs=1e-6)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=() if row["p"] == 8 else pytest.mark.slow, id=table_5.key_of(row))
        for row in published.rows("zerobubble/table_9")
    ],
)
def test_the_costs_kept_are_those_of_the_rules(row):
    times, share = table_5.times_of(row), table_5.weight_memory(table_5.model_of(row["model"]))
    for name, k in table_5.SEARCHED.items():
        kept = table_5.found()["searched"][table_5.key_of(row)][name]
        schedule = zero_bubble.ruled(row["p"], row["m"], k, times, share, Rule(*kept["rule"]))
        assert zero_bubble.execute(schedule, times) == (kept["own"], kept["flushed"])


def test_every_model_and_row_has_its_rule_and_times():
    kept = table_5.found()
    assert set(kept["searched"]) == {table_5.key_of(row) for row in published.rows("zerobubble/table_9")}
    assert set(kept["times"]) == {table_5.key_of(row) for row in published.rows("zerobubble/table_8")}


@pytest.mark.parametrize(("layers", "stages"), [(22, 8), (22, 24), (30, 32), (62, 32), (46, 24)])
def test_first_and_last_stage_have_a_layer_fewer(layers, stages):
    counts = [stage.count("t") for stage in table_4.layout(layers, stages).split("|")]
    assert len(counts) == stages
    assert sum(counts) == layers
    assert counts[0] == counts[-1] == counts[1] - 1
    assert len(set(counts[1:-1])) == 1


def test_what_our_own_tables_and_searches_find_is_no_sentence_of_the_paper():
    claims = [claim for id in catalog.ids("zerobubble") for claim in catalog.load(id).claims]
    assert {claim.id for claim in claims if claim.place == OURS} == {
        *("search_reaches_zb_1p", "search_reaches_zb_2p", "zb_2p_as_transcribed", "ring_less"),
        *("table_8_zb_h2", "table_8_1f1b_i", "table_8_zb_v"),
    }
    counted = {statement["id"] for statement in coverage.statements(papers.paper("zerobubble"))}
    assert {claim.id for claim in claims if claim.place != OURS} <= counted
    assert "ring_less" not in counted


def flush_costs(point):
    """How much longer an iteration is than the longest of a rank's own, from its first pass to its own step's end."""
    estimate = simulate(TrainingConfig.from_plain(point.parameters), load_cluster("a100-80-roce"), timeline=True)
    own = []
    for row in estimate.timeline:
        step = next(number for number, event in enumerate(row) if event.kind == "optimizer")
        own.append(row[step - 1].end - row[0].start + row[-1].end - row[step].start)
    return estimate.iteration_time / max(own) - 1


@pytest.mark.parametrize(
    ("series", "least", "most"),
    [("1F1B", 0, 0.002), ("1F1B-I", 0, 0.002), ("ZB-1p", 0, 0.002), ("ZB-V", 0.0055, 0.0345), ("ZB-2p", 0, 0.083)],
)
def test_what_a_flush_costs_is_what_the_claims_say(series, least, most):
    """Of every model the fewest microbatches, where it costs most, and of the smallest the most of them."""
    points = [point for point in table_4.points() if point.series == series]
    rows = {(point.parameters["model"], point.parameters["table"]): point for point in reversed(points)}
    ends = [*rows.values(), *(point for point in points if point.parameters["model"] == "6.2B")]
    costs = [flush_costs(point) for point in ends]
    assert least - 1e-12 <= min(costs) <= max(costs) <= most
    assert max(costs) > 0.8 * most or most == 0.002
