"""Judges every claim of the articles on measured rows: claims and evidence in, one verdict per claim out.

`claims` reads articles/<name>/claims.yaml, `metrics` holds one object per word of its vocabulary, `rules` the
verdicts; `judging` leads a claim from its evidence to its verdict, and the stage `verdicts` writes
results/verdicts.json.
"""
