"""Calibration: a cluster file of this machine, from microbenchmarks alone.

    timings     what is measured, as plain numbers, and for which sizes
    measure     the microbenchmarks of the annex `bench` on as many ranks at once as the node has devices
    gemm_fit    the numbers of the GEMM model from timings of matrix products
    fit         every number of the cluster, with range and source: measured, or taken from a base cluster
    write       the file, as `ptdp_core/simulator/clusters/selene.toml` has it
    checking_runs   a few training runs of the engine, for `reproduce accuracy` to predict

No time of a training step feeds the file, so that `reproduce accuracy --cluster FILE` tests it.
"""
