"""What is computed over records and clusters: scoring, planning, calibration, comparison."""
