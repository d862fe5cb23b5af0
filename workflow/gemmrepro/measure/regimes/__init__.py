"""Times kernels as they are used: alone on a hot GPU (sustained), and from rest (burst).

- `rules`: when a GPU counts as hot, steady or rested.
- `blocks`: one block of either regime on a `Device`; `gpu_device` is the real one.
- `plan`: what is measured, in which order; `passes` measures it and keeps it in the journal.
- `columns`, `derived`: the tables, and how a row follows from samples and readings.
- `files`: reads and writes them, `places` names them; `recorded` brings recordings; `stage` measures.
- `spread`: how far takes agree, on one card and from card to card; `cards` prints it.
"""
