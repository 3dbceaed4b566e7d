"""Studies: grids of measurements from a plan, resumable, on this machine or on a cluster."""
