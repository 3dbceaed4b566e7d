"""Inversion: the words of a text, read back from its vector.

`blackbox`, `sparse`, `relaxation` and `sequence` hold the attackers, `layers` what a white-box
attacker sees of an encoder, `word_sets` and `bleu` what is scored and `measure` the findings.
`decoder`, `rewriting` and `candidate_search` are parts of `sequence`. They are conducted by
`evaluation.inversion`.
"""
