"""What measures and what is kept: microbenchmarks, timing, and the records that every result is written to.

    records/   the format of a result and its files; exit codes
    harness/   timing, and running one benchmark
    suite/     the benchmarks, one module each
    exact/     everything deterministic, compared with the committed reference at zero tolerance
    gate/      the paired timing gate behind `reproduce gate`

Depends on `ptdp_core` and `kernels`; `reproduce` stands on it.
"""
