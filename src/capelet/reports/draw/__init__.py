"""Pictures as inline SVG: bars, curves, maps, and leakage against utility."""
