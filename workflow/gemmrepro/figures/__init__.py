"""Draws figures as SVG, each with a JSON file for its caption, alternative text and rows.

- `stage` draws what `catalogue` lists for a family; `style` and `points` are shared.
- `climb`, `ratio`, `sizes`, `tiles`: figures of sweeps and searches.
- `tables`: the articles' tables and charts, published beside measured; `numbers` looks both up.
- `lines`, `dots`: figures of experiments.
"""
