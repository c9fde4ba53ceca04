"""PTD-P core: configurations, the paper's formulas, schedules, the simulator (no torch) and the engine (torch)."""
