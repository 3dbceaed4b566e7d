"""Inversion: the words of a text, read back from its vector.

`run.Inversion` is the whole measurement on one release; `blackbox`, `sparse` and `relaxation` hold
the attackers, `layers` what a white-box attacker sees of an encoder, `words` what is scored and
`measure` the findings.
"""
