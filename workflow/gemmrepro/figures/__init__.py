"""Draws figures as SVG, each with a JSON file for its caption, alternative text and rows.

- `stage` draws by name; `kit` has the forms, `style` the look, `inputs` what is drawn, `slim` makes SVGs small.
- `ladder`: figures of sweeps; `declared`: those that experiments declare; `tables`: published beside measured.
- `paper`: the whole paper's. Those of a family alone stand beside it, in kernels/<family>/figures.py.
"""
