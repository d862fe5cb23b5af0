"""Writes the report, ``reports/index.html``, from verdicts, rows, gates and figures.

- `page` renders the templates from `inputs`; `claims`, `machine`, `limits`, `regimes`, `gpus` and `references` fill its
  general sections.
- `family` and `kernel` make the pages of families and kernels, with `table`, `rows`, `step`, `gates`, `machine_code`
  and `experiments`; `text` formats numbers, `provenance` finds the row behind a number.
- `figure_views` embeds the figures. `findings` renders a family's prose.
- `exports` holds the data for programs; `bundle` and `policy` make a folder of the pages, `archive` a ZIP file.
"""
