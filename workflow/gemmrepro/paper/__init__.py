"""Writes the report, ``reports/index.html``, from verdicts, rows, gates and figures.

`page` renders the templates from `inputs`; `claims`, `gpus` and `regimes` fill its general sections, `family` and
`kernel` pages of their own, `text` formats rows, `findings` a family's prose. `exports` holds the data for programs,
`bundle` makes the folder of pages, or a ZIP file of it.
"""
