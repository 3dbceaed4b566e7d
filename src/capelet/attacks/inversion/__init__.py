"""Inversion: the words of a text, read back from its vector.

`run.Inversion` is the whole measurement on one release; `blackbox`, `sparse`, `relaxation` and
`sequence` hold the attackers, `layers` what a white-box attacker sees of an encoder, `words` and
`bleu` what is scored and `measure` the findings. `decoder`, `rewriting` and `search` are parts of
`sequence`.
"""
