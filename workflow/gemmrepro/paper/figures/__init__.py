"""Figures as SVG, each with a JSON file for its caption, alternative text and rows.

- `stage` draws what `catalogue` lists for a family; `style` and `points` are shared.
- `climb`, `ratio`, `throughput`, `roofline`, `sizes`, `tiles`: figures of sweeps and searches.
- `lines`, `dots`: figures of experiments.
"""
