"""Writes the report, ``reports/index.html``, from verdicts, rows, gates and figures.

- `page` renders the template from `inputs`; `machine`, `limits` and `locks` fill its general sections.
- `family` and `kernel` make the sections of each family, with `table`, `rows`, `evidence`, `gates`, `machine_code`,
  `claims` and `experiments`; `text` formats numbers.
- `figure_views` and `inline_svg` embed the figures. `findings` renders a family's prose.
"""
