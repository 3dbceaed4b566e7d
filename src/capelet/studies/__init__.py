"""Studies: grids of cells, their statistics, and the pages of results."""
