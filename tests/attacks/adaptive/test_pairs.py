"""The inverse learnt from pairs: exact for a rotation, better with a network where maps bend."""

from __future__ import annotations

import numpy as np

from capelet.attacks.adaptive.pairs import NetworkInverse, RidgeInverse, choose_inverse, fit_inverse


def test_a_rotation_is_undone_by_as_many_pairs_as_dimensions() -> None:
    random = np.random.default_rng(0)
    rotation = np.linalg.qr(random.normal(size=(8, 8)))[0]
    x = random.normal(size=(60, 8))
    guess = RidgeInverse.fit(x[:40] @ rotation, x[:40])(x[40:] @ rotation)
    assert np.abs(guess - x[40:]).max() < 1e-2
    few = RidgeInverse.fit(x[:4] @ rotation, x[:4])(x[40:] @ rotation)
    assert np.abs(few - x[40:]).max() > 0.5  # the control: four pairs do not span it


def test_a_network_is_chosen_where_the_release_bends() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(1500, 3))
    z = np.where(x > 0, x, 0.2 * x)
    name, share = choose_inverse(z[:1000], x[:1000])
    assert name == "network"
    errors = [
        float(((fit_inverse(key, z[:1000], x[:1000])(z[1000:]) - x[1000:]) ** 2).mean())
        for key in ("ridge", "network")
    ]
    assert errors[1] < 0.8 * errors[0] and 0 < share < 1


def test_noise_has_no_inverse() -> None:
    random = np.random.default_rng(2)
    x, z = random.normal(size=(2, 400, 5))
    assert choose_inverse(z, x)[1] < 0.05
    guess = NetworkInverse.fit(z[:300], x[:300])(z[300:])
    assert ((guess - x[300:]) ** 2).mean() > 0.9
