"""Writes the report, ``reports/index.html``, from verdicts, rows, gates and figures.

- `page` renders the templates from `inputs`; `claims`, `gpus` and `regimes` fill its general sections.
- `family` and `kernel` make the pages of families and kernels, `text` formats the rows.
- `findings` renders a family's prose.
- `exports` holds the data for programs; `bundle` makes a folder of the pages, `archive` a ZIP file.
"""
