"""The harness: what counts as a sample, in which order they are taken, and what is said of them."""

import pytest
import torch

from benchmarks.harness import timing
from benchmarks.harness.timing import Samples, Step, disturbed, measure, take_turns


def scripted(seconds):
    """A timer that runs the step and gives the next of `seconds`."""
    script = iter(seconds)

    def timer(step):
        step.run(step.prepare())
        return next(script)

    return timer


def test_samples_say_minimum_median_and_quantiles():
    samples = Samples((4.0, 1.0, 2.0, 3.0))
    assert (samples.minimum, samples.median) == (1.0, 2.5)
    assert [samples.quantile(share) for share in (0, 0.5, 1)] == [1.0, 2.5, 4.0]
    assert samples.quantile(0.9) == pytest.approx(3.7)
    assert samples.per(4).seconds == (1.0, 0.25, 0.5, 0.75)


def test_no_sample_is_an_error():
    with pytest.raises(ValueError, match=r"seconds=\(\) holds no sample"):
        Samples(())
    with pytest.raises(ValueError, match="rounds=0 measures nothing"):
        take_turns({}, timing.wall_timer(), rounds=0)
    with pytest.raises(ValueError, match=r"share=1.5 is no share"):
        Samples((1.0,)).quantile(1.5)


def test_the_warm_up_is_run_but_not_kept():
    runs = []
    times = measure(lambda: runs.append(1), samples=2, warm_up=3, timer=scripted([9, 9, 9, 1, 2]))
    assert (times.seconds, len(runs)) == ((1, 2), 5)


def test_each_round_has_every_step_once_in_an_order_that_changes():
    order = []
    steps = {name: Step.of(lambda name=name: order.append(name)) for name in "abc"}
    rounds_of = take_turns(steps, scripted(range(30)), rounds=10, warm_up=0)
    rounds = ["".join(order[i : i + 3]) for i in range(0, 30, 3)]
    assert all(sorted(names) == list("abc") for names in rounds)
    assert len(set(rounds)) > 2
    assert [len(rounds_of[name].seconds) for name in "abc"] == [10] * 3
    assert rounds_of[order[4]].seconds[1] == 4  # a sample belongs to the step that was run


def test_a_slow_step_gets_fewer_samples_but_three():
    assert len(measure(lambda: None, samples=20, warm_up=1, limit_s=5, timer=scripted([1] * 21)).seconds) == 6
    assert len(measure(lambda: None, samples=20, warm_up=0, limit_s=5, timer=scripted([100] * 20)).seconds) == 3


def test_preparation_is_not_timed(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])

    def pass_time(seconds):
        clock[0] += seconds
        return seconds

    step = Step(run=lambda prepared: pass_time(2.0 * prepared), prepare=lambda: pass_time(10.0))
    assert timing.wall_timer()(step) == 20.0


@pytest.mark.parametrize(("after", "is_disturbed"), [(1.05, False), (0.95, False), (1.2, True), (0.8, True)])
def test_canaries_tell_a_disturbed_machine(after, is_disturbed):
    assert disturbed(Samples((1.0,)), Samples((after,))) is is_disturbed


def test_the_canary_is_measured():
    assert len(timing.canary().seconds) == timing.CANARY_SAMPLES
    assert timing.canary().minimum > 0


def test_a_gpu_s_canary_takes_longer_than_launching_it():
    size, products = timing.GPU_CANARY
    assert 2 * size**3 * products / 1e15 >= 2e-3  # seconds at 1 PFLOP/s


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_device_and_not_the_launch_is_timed():
    x = torch.zeros(1, device="cuda")
    large = torch.zeros(2**28, dtype=torch.int8, device="cuda")
    small = measure(lambda: x.add_(1), "cuda").median
    assert 0 < small < 50e-6
    assert measure(lambda: large.add_(1), "cuda").median > 3 * small
    assert timing.canary("cuda").minimum > 0
