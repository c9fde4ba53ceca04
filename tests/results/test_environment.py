"""The conditions of a run, read from made-up files and a made-up nvidia-smi."""

import pytest

from results.records.provenance import GPU_QUERIES, environment

FILES = {
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/node/online": "0-1\n",
    "proc/cpuinfo": "processor : 0\ncpu MHz\t\t: 3100.5\nprocessor : 1\ncpu MHz\t\t: 800.2\n",
    "proc/self/cgroup": "0::/system.slice/job\n",
    "sys/fs/cgroup/system.slice/job/cpu.max": "max 100000\n",
    "sys/fs/cgroup/system.slice/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/cpu.max": "400000 100000\n",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def no_gpu(queries):
    return None


def test_the_tightest_limit_above_a_process_counts(root):
    known = environment(no_gpu, root)
    assert known.pop("cpu_usable_cores").isdigit()
    known = {name: value for name, value in known.items() if name not in ("cuda", "nccl")}
    expected = {"cpu_governor": "powersave", "cpu_mhz": "800 to 3100", "cpu_quota_cores": "1.5", "numa_nodes": "0-1"}
    assert known == expected


def test_what_cannot_be_read_is_left_out(tmp_path):
    assert environment(no_gpu, tmp_path).keys() <= {"cpu_usable_cores", "cuda", "nccl"}


def test_gpus_are_one_range_and_throttle_reasons_have_names(tmp_path):
    def two_gpus(queries):
        assert queries == list(GPU_QUERIES.values())
        return (
            "580.1, 990, 1980, 2619, 700.00, 0x0000000000000004\n580.1, 1980, 1980, 2619, [N/A], 0x0000000000000000\n"
        )

    known = environment(two_gpus, tmp_path)
    assert known["gpu_driver"] == "580.1"
    assert known["gpu_sm_mhz"] == "990 to 1980"
    assert known["gpu_power_limit_w"] == "700.00"
    assert known["gpu_throttle_reasons"] == "power cap; none"


@pytest.mark.parametrize("text", ["", "Field is not a valid field to query.\n"])
def test_an_nvidia_smi_that_does_not_know_the_questions(text, tmp_path):
    assert not any(name.startswith("gpu") for name in environment(lambda queries: text, tmp_path))
