"""What several artifacts share: grids of configurations, points, claims and drawing helpers."""
