"""The benchmarks, a module each, whose `points(setup)` measures and yields the points of the benchmark's record.

`measure_here` of a module is what each of its ranks runs. The benchmarks that `reproduce calibrate` uses also have
plain functions: `gemm.measure`, `memory.copy`, `memory.kernel_gap`, `p2p.measure` and `collectives.measure`. The names,
titles and columns of all are in `benchmarks.harness.registry`.
"""
