"""Work in forked processes: results in order, what is said and raised arrives, and nothing is left behind."""

import os
import signal
import time

import pytest

from reproduce.running.side_by_side import SideBySide
from results.records.errors import InvalidResultsError, UnavailableError
from tests.processes import Program, needs_proc, wait_for


def squares(work, count, processes=2):
    said = []
    with SideBySide(work, processes) as started:
        return list(started.results(count, said.append)), said


def test_results_come_in_order_from_more_than_one_process():
    def work(index, say):
        say(f"at {index}")
        time.sleep(0.05 if index == 0 else 0)  # the first is done last
        return index, os.getpid()

    results, said = squares(work, 6)
    assert [index for index, _ in results] == list(range(6))
    processes = {process for _, process in results}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert sorted(said) == [f"at {index}" for index in range(6)]


def test_an_exception_is_raised_where_the_results_are_taken():
    def work(index, say):
        if index == 1:
            raise InvalidResultsError("record.json is none")
        return index

    with pytest.raises(InvalidResultsError, match=r"record\.json is none"):
        squares(work, 3)


def test_a_process_that_is_killed_is_an_error_of_one_line():
    with pytest.raises(UnavailableError, match=r"ended by itself \(exit code -9\)"):
        squares(lambda index, say: os.kill(os.getpid(), signal.SIGKILL), 2)


FOREVER = """
import sys, time
from ptdp_core.interrupts import allowed, held, run_program
from reproduce.running.side_by_side import SideBySide
def work(index, say):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("undone", flush=True)
def main():
    with held(), SideBySide(work, 2) as processes, allowed():
        return list(processes.results(2, print))
run_program("forever", main)
"""


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(tmp_path, number):
    """Told to, they undo what they began; where their parent is killed they do not wait for more work."""
    script = FOREVER if number == signal.SIGTERM else FOREVER.replace("time.sleep(60)", "time.sleep(1)")
    with Program(tmp_path, "-c", script) as program:
        wait_for(lambda: program.out_path.read_text().count("begun") == 2)
        program.process.send_signal(number)
        program.process.wait()
        wait_for(lambda: not program.processes())
        assert program.out_path.read_text().count("undone") == 2
