"""What is computed over records and clusters: scores, plans, calibration, comparison, searches."""
