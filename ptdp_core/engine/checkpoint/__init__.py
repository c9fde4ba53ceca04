"""Checkpoints: `checkpoints` saves and loads them; their `folder`, `state`, `tensors` and `metadata`."""
