"""What measures: microbenchmarks with their timing, and the checks for regressions.

    harness/   timing, and running one benchmark
    suite/     the benchmarks, one module each
    exact/     everything deterministic, compared with the committed reference at zero tolerance
    gate/      the paired timing gate behind `reproduce gate`

Depends on `ptdp_core` and `kernels`; `reproduce` stands on it.
"""
