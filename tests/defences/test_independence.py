"""The independence term against kernel ridge regression written out with numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from capelet.data.labels import Attribute  # noqa: E402
from capelet.defences.fitting import Body, Network  # noqa: E402
from capelet.defences.terms import Batch, Independence  # noqa: E402
from capelet.training.networks import dense  # noqa: E402

ROWS, WIDTH = 96, 5


def attribute(name: str, codes: np.ndarray, classes: int) -> Attribute:
    return Attribute(name, codes.astype(np.intp), tuple("abcdef"[:classes]))


def centred(kernel: np.ndarray) -> np.ndarray:
    rows, columns = kernel.mean(axis=1, keepdims=True), kernel.mean(axis=0, keepdims=True)
    return kernel - rows - columns + kernel.mean()


def by_hand(features: np.ndarray, secret: Attribute, weights: np.ndarray, width: float) -> float:
    """Σ over classes of the squared correlation of a ridge attacker's guess on the other half."""
    centre = features - features.mean(axis=0)
    unit = centre / np.linalg.norm(centre, axis=1, keepdims=True)
    kernel = unit @ unit.T
    if width:
        kernel = np.exp(2 * width * (kernel - 1))
    half = ROWS // 2
    halves = [np.arange(half), np.arange(half, ROWS)]
    known = secret.codes >= 0
    classes = range(len(secret.classes)) if len(secret.classes) > 2 else [1]
    total = 0.0
    for code in classes:
        target = (secret.codes == code).astype(float)
        row_weight = np.where(known, weights[np.maximum(secret.codes, 0)], 0.0)
        for learn, score in (halves, halves[::-1]):
            w = [row_weight[rows] / row_weight[rows].sum() for rows in (learn, score)]
            y = [
                target[rows] - (v * target[rows]).sum()
                for rows, v in zip((learn, score), w, strict=True)
            ]
            own = centred(kernel[np.ix_(learn, learn)]) + 1e-3 * half * np.eye(half)
            dual = np.linalg.solve(own, half * w[0] * y[0])
            guess = centred(kernel[np.ix_(score, learn)]) @ dual
            guess -= (w[1] * guess).sum()
            shared = max((w[1] * y[1] * guess).sum(), 0.0) ** 2
            total += shared / ((w[1] * y[1] ** 2).sum() * (w[1] * guess**2).sum() + 1e-8) / 2
    return total


def term_of(
    features: np.ndarray, secrets: Sequence[Attribute], weights: np.ndarray, width: float
) -> float:
    term = Independence(secrets, 1.0, warm=0.0)
    term.WIDTHS = (width,)
    network = Network(Body(dense([WIDTH, WIDTH])), [term])
    network.weights = {
        item.name: torch.tensor(weights[: len(item.classes)], dtype=torch.float64)
        for item in secrets
    }
    x = torch.tensor(features)
    codes = {item.name: torch.tensor(item.codes) for item in secrets}
    with torch.no_grad():
        return float(term(Batch(x, x, codes, 1.0, torch.Generator().manual_seed(0)), network))


@pytest.mark.parametrize("width", [0.0, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_every_class_counts_and_of_two_only_one(classes: int, width: float) -> None:
    random = np.random.default_rng(classes)
    codes = random.integers(0, classes, ROWS)
    features = random.normal(size=(ROWS, WIDTH))
    features[:, 0] += codes
    features[:, 1] += 2.0 * (codes == classes - 1)
    codes[::11] = -1  # missing values weigh nothing
    secret = attribute("secret", codes, classes)
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    wanted = by_hand(features, secret, weights, width)
    assert wanted > 0.2
    assert term_of(features, [secret], weights, width) == pytest.approx(wanted, rel=1e-4)
    other = attribute("other", random.integers(0, 3, ROWS), 3)
    both = wanted + by_hand(features, other, weights, width)
    assert term_of(features, [secret, other], weights, width) == pytest.approx(both, rel=1e-4)
