"""Attackers that know the defence: they walk the release back, or weigh its noise.

A plain attacker holds labelled vectors. These hold more: *pairs* of raw and released vectors of
own texts (whoever can call the service has them), or *the folder* itself (every user of a private
encoder has it). A map that only they can read through hides nothing.

- `pairs`: learn the raw vector from the released one; read it with attackers of raw vectors.
- `undo`: invert the learnt map by its own gradient; read the pre-image likewise.
- `likelihood`: weigh own texts by the density of the noise at what was released.
"""

from __future__ import annotations

PAIRS, UNDO, LIKELIHOOD = "pairs", "undo", "likelihood"
# What each holds beside released vectors and labels of its own texts.
HOLDS = {PAIRS: "pairs", UNDO: "the folder", LIKELIHOOD: "the folder"}
VECTORS = "vectors"
