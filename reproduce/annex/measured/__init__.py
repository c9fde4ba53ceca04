"""Fidelity measured: the engine trains real models on the devices of this machine, or of an allocation."""
