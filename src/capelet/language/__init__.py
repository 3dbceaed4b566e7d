"""Language models that do not remember who wrote what: training, regularisers and DP-SGD.

`vocabulary` turns texts into samples, `model` holds the two networks, `training` the one loop with
its four methods, `folders` what is written. What a model remembers is measured elsewhere
(`attacks.extraction`): a trainer must not choose what judges it.
"""
