"""Judges every claim of the articles on measured rows, and writes one verdict per claim (stage `verdicts`).

`claims` reads articles/<name>/claims.yaml, `metrics` has one object per word of its vocabulary, `rules` the verdicts;
`judging` leads a claim from its evidence to its verdict.
"""
