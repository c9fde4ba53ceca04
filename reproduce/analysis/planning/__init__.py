"""The best configuration for a model, GPUs and a batch: `reproduce plan` (the search is in `ptdp_core.simulator`)."""
