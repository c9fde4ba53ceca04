"""How differences are found, grouped by cause, and said."""

import pytest

from reproduce.annex.exact.differences import Change, compare, explain
from reproduce.annex.exact.entries import Entry
from reproduce.annex.exact.wording import body, headline, moved


def test_equal_values_differ_in_nothing():
    quantities = {"memory": {"peak stash": [2, 1]}, "order": {"table": ["0F0", "1F0"]}}
    assert compare("engine", {"a": quantities}, {"a": Entry(quantities)}) == []


def test_a_value_counts_by_rank_and_also_where_it_is_missing():
    old = {"communication": {"calls": [1, 2], "gone": 3}}
    new = Entry({"communication": {"calls": [1, 4], "new": [0, 1]}})
    changes = [(c.name, c.rank, c.old, c.new) for c in compare("engine", {"a": old}, {"a": new})]
    assert changes == [("calls", 1, 2, 4), ("gone", None, 3, None), ("new", 0, None, 0), ("new", 1, None, 1)]


def test_zero_tolerance_goes_down_to_the_type():
    """A count that became a float, and the last bit of one."""
    for old, new in ((1, 1.0), (0.1, 0.1 + 2**-56), (10**18, 10**18 + 1)):
        assert len(compare("s", {"a": {"time": {"x": old}}}, {"a": Entry({"time": {"x": new}})})) == 1


def test_an_entry_that_is_new_or_gone_is_one_change():
    quantities = {"time": {"x": 1, "y": 2}}
    changes = compare("simulated", {"old": quantities}, {"new": Entry(quantities)})
    (message,) = explain(changes)
    assert (
        headline(message) == "entries (simulated): 1 that the reference does not have; 1 of the reference that are gone"
    )
    assert body(message) == ["gone: old", "new: new"]


def change(kind, entry="a", section="engine", schedule=""):
    return Change(section, entry, kind, f"some {kind}", None, 1, 2, schedule)


def test_a_later_kind_goes_with_an_earlier_one_of_its_entry_only():
    calls, time, other = change("communication"), change("time"), change("time", entry="b")
    messages = explain([time, other, calls])
    assert [(m.changes, m.with_it) for m in messages] == [([calls], [time]), ([other], [])]


def test_an_order_explains_every_section_that_runs_such_a_schedule():
    table = change("order", "1f1b p=2 m=4 v=1", "schedules", "1f1b p=2 m=4 v=1")
    slower = change("time", "Table 1", "simulated", "1f1b p=8 m=64 v=1")
    interleaved = change("time", "Figure 12", "simulated", "interleaved p=12 m=12 v=4")
    messages = explain([slower, table, interleaved])
    assert [(m.changes, m.with_it) for m in messages] == [([table], [slower]), ([interleaved], [])]


def test_independent_causes_are_messages_of_their_own():
    messages = explain([change("work", "a"), change("communication", "b"), change("work", "c", "simulated")])
    assert len(messages) == 3


def test_two_swapped_actions_are_named():
    assert moved("0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1") == "0F1 and 0B0 swapped (positions 1 and 2)"


def test_a_lost_an_added_and_another_action_are_named():
    assert moved("0F0 0F1 0B0", "0F0 0B0") == "position 1: 0F1 -> nothing"
    assert moved("0F0 0B0", "0F0 0F1 0B0") == "position 1: nothing -> 0F1"
    assert moved("0F0 0F1 0B0", "0F0 0F2 0B0") == "position 1: 0F1 -> 0F2"


def test_a_message_says_old_new_and_the_relative_change():
    changes = [
        Change("simulated", f"point {i}", "time", "iteration ns", None, 1000, 1000 + 10 * i) for i in range(1, 6)
    ]
    (message,) = explain(changes)
    assert headline(message) == "time (simulated): iteration ns in 5 (+1% to +5%)"
    assert body(message) == [
        "iteration ns (+1% to +5%)",
        "  point 1: 1000 -> 1010 (+1%)",
        "  point 2: 1000 -> 1020 (+2%)",
        "  point 3: 1000 -> 1030 (+3%)",
        "  and 2 more",
    ]


def test_scatter_gather_is_named_only_where_every_tensor_grew_by_t():
    def sizes(*pairs):
        return [
            Change("engine", f"case {i}", "communication", "message bytes", 0, old, new, "", 2)
            for i, (old, new) in enumerate(pairs)
        ]

    assert "scatter/gather lost" in headline(explain(sizes((100, 200), (50, 100)))[0])
    assert "where there was none" in headline(explain(sizes((200, 100)))[0])
    assert "scatter/gather" not in headline(explain(sizes((100, 200), (50, 99)))[0])


def test_ranks_with_the_same_change_stand_together():
    changes = [Change("engine", "a", "communication", "tp all_reduce calls", rank, 5, 6) for rank in range(3)]
    changes.append(Change("engine", "a", "communication", "tp all_reduce calls", 3, 7, 9))
    (message,) = explain(changes)
    assert "  a: rank 0, 1, 2: 5 -> 6 (+20%); rank 3: 7 -> 9 (+28.6%)" in body(message)


def test_texts_are_compared_by_what_they_count_and_hold_for_all_ranks():
    old = {"operators": {"model.f": "4 clone bf16, 12 mm bf16", "model.g": ["2 mm fp32", ""]}}
    new = Entry({"operators": {"model.f": ["4 clone bf16, 12 mm bf16", "6 clone bf16"], "model.g": ["2 mm fp32", ""]}})
    changes = compare("counts", {"a": old}, {"a": new})
    assert [(c.name, c.rank, c.old, c.new) for c in changes] == [
        ("model.f: clone bf16", 1, 4, 6),
        ("model.f: mm bf16", 1, 12, 0),
    ]
    (message,) = explain(changes)
    assert headline(message) == "operators (counts): model.f: +2 clone bf16, -12 mm bf16 (in 1 entry)"


def test_a_host_synchronisation_is_named_first():
    wait = "host synchronisation .item()"
    counts = {"model.f: mm bf16": 99, "model.g: mm bf16": 9, f"model.g: {wait}": 1}
    (message,) = explain([Change("counts", "a", "operators", name, 0, 0, n) for name, n in counts.items()])
    assert headline(message).startswith(f"operators (counts): model.g: +1 {wait}, +9 mm bf16; model.f")


def test_a_hang_and_a_failure_are_called_so():
    for why, title in (("rank 1 hangs: it is in g", "hangs"), ("rank 0 failed: ValueError: no", "cannot run")):
        (message,) = explain([Change("engine", e, "order", "cannot run", None, None, why) for e in ("a", "b")])
        assert headline(message) == f"{title} (engine): {why} (in 2 entries)"


def test_growth_names_the_power():
    (message,) = explain([Change("growth", "compile step", "growth", "executor.compile", None, 1, 2)])
    assert headline(message) == "growth (growth): executor.compile linear -> quadratic in compile step"


def extracted(**changed):
    """An entry in which `model.f` has given two of its operators to a new function `model.g`, and what else changed."""
    quantities = {
        "operators": {"model.f": ["2 mm fp32, 64 bytes", "6 mm fp32, 64 bytes"], "model.g": "2 add fp32, 32 bytes"},
        "peak": {"peak": "64 bytes of model.f, 32 bytes of model.g"},
        "memory": {"peak bytes": [96, 96]},
        "calls": {"model": "4 f, 2 g"},
    }
    return Entry(quantities | changed)


WHOLE = {
    "operators": {"model.f": ["2 add fp32, 2 mm fp32, 96 bytes", "2 add fp32, 6 mm fp32, 96 bytes"]},
    "peak": {"peak": "96 bytes of model.f"},
    "memory": {"peak bytes": [96, 96]},
    "calls": {"model": "4 f"},
}


def test_an_extracted_method_is_said_to_be_one():
    """Over ranks that differ, with the new function alike on all of them."""
    (message,) = explain(compare("counts", {"a": WHOLE, "b": WHOLE}, {"a": extracted(), "b": extracted()}))
    assert headline(message) == (
        "moved (counts): 2 operators from model.f to model.g; nothing else changed (in 2 entries)"
    )
    (back,) = explain(compare("counts", {"a": extracted().quantities}, {"a": Entry(WHOLE)}))
    assert headline(back).startswith("moved (counts): 2 operators from model.g to model.f; ")


@pytest.mark.parametrize(
    "more",
    [
        {"operators": {"model.f": ["2 mm fp32, 64 bytes", "6 mm fp32, 64 bytes"], "model.g": "3 add fp32, 32 bytes"}},
        {"operators": {"model.f": ["2 mm fp32, 64 bytes", "6 mm fp32, 64 bytes"], "model.g": "2 add fp32, 40 bytes"}},
        {"operators": {"model.f": ["4 mm fp32, 64 bytes", "4 mm fp32, 64 bytes"], "model.g": "2 add fp32, 32 bytes"}},
        {"memory": {"peak bytes": [96, 128]}},
        {"calls": {"model": "5 f, 2 g"}},
        {"waits": {"model.g": "1 waits"}},
        {"work": {"GEMM FLOPs": 1}},
    ],
)
def test_a_method_that_also_does_more_was_not_merely_moved(more):
    """One operator more, more bytes, work on another rank, a higher peak, another call, a wait, and other work."""
    for message in explain(compare("counts", {"a": WHOLE}, {"a": extracted(**more)})):
        assert message.kind != "moved"


def test_a_move_in_one_entry_does_not_hide_a_regression_in_another():
    worse = extracted(memory={"peak bytes": [96, 128]})
    kinds = [
        message.kind for message in explain(compare("counts", {"a": WHOLE, "b": WHOLE}, {"a": worse, "b": extracted()}))
    ]
    assert kinds == ["operators", "moved"]


def test_calls_and_lines_count_as_moved_only_where_work_moved_to_the_function():
    def and_calls(function):
        entries = {"a": Entry(WHOLE), "b": Entry({"calls": {"model": "4 f"}})}
        reference = {name: entry.quantities for name, entry in entries.items()}
        calls = Entry({"calls": {"model": f"4 f, 2 {function}"}, "growth": {f"model.{function}": 1}})
        return [headline(message) for message in explain(compare("counts", reference, {"a": extracted(), "b": calls}))]

    assert and_calls("g") == [
        "moved (counts): 2 operators from model.f to model.g; nothing else changed (in 2 entries)"
    ]
    growth, moved = and_calls("h")
    assert growth == "growth (counts): model.h few lines -> linear in b"
    assert moved.startswith("moved (counts): ")


def test_a_function_that_was_never_called_may_be_an_extracted_one():
    (message,) = explain([Change("counts", "a", "calls", "model: g", None, 0, 2)])
    assert headline(message) == (
        "Python calls (counts): model: +2 g (in 1 entry); not called before, so lines moved there, or Python does more"
    )
    (message,) = explain([Change("counts", "a", "calls", "model: g", None, 1, 2)])
    assert headline(message) == "Python calls (counts): model: +1 g (in 1 entry)"
