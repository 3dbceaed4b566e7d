"""The gateway: private embeddings behind the protocol that embeddings are asked for with.

`gateway` decides (who asks, for whom, what it costs), `batcher` draws and settles, `app` has the
routes. **Charge and vectors are committed in one transaction, and only what the store holds is
answered**; whatever was drawn and lost the race, or met a full budget, is forgotten.
"""
