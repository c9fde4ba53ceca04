"""Two functions in turns: in one order, each with its own state, and errors of both come out."""

import pytest

from ptdp_core.turns import Turns


class State:
    def __init__(self):
        self.place = ""


def test_each_goes_on_where_the_other_hands_over_and_has_its_own_state():
    state, said = State(), list[tuple[str, str]]()
    turns = Turns(state)

    def speak(name, times):
        state.place = f"of {name}"
        for number in range(times):
            said.append((f"{name}{number}", state.place))
            turns.hand_over()

    with turns.beside(lambda: speak("b", 3)):
        speak("f", 2)
    assert said == [("b0", "of b"), ("f0", "of f"), ("b1", "of b"), ("f1", "of f"), ("b2", "of b")]
    with turns.beside(lambda: speak("b", 1)):
        speak("f", 3)
    assert [name for name, _ in said[5:]] == ["b0", "f0", "f1", "f2"]
    turns.hand_over()  # alone: nobody to hand over to
    speak("alone", 1)
    assert said[-1] == ("alone0", "of alone")


def test_without_handing_over_one_runs_after_the_other():
    said = []
    with Turns().beside(lambda: said.append("b")):
        said.append("f")
    assert said == ["b", "f"]


@pytest.mark.parametrize("at", [0, 1])
def test_an_error_of_the_other_is_raised_where_its_turn_would_have_been(at):
    turns, said = Turns(), []

    def fails():
        for _ in range(at):
            turns.hand_over()
        raise ArithmeticError("of b")

    def run():
        with turns.beside(fails):
            said.append("f")
            turns.hand_over()
            said.append("not reached")

    with pytest.raises(ArithmeticError, match="of b"):
        run()
    assert said == ["f"] * at


def test_an_error_of_this_side_leaves_the_other_behind():
    turns, said = Turns(), []

    def other():
        turns.hand_over()
        said.append("not reached")

    with pytest.raises(ArithmeticError, match="of f"), turns.beside(other):
        raise ArithmeticError("of f")
    with turns.beside(lambda: said.append("the next pair")):
        pass
    assert said == ["the next pair"]
