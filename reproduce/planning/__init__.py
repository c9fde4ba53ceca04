"""How to train a model on n GPUs, how long and at what cost."""
