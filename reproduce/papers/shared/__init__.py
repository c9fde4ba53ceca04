"""What several papers share: grids of configurations, points, claims, drawing helpers, tables of measurements."""
