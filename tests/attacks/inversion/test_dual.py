"""White-box inversion of dual encoders: whoever holds the folder reads words out of its vectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from capelet.attacks.inversion.layers import OpenDual, open_encoder
from capelet.encoders.dual import SPECIAL, DualEncoder, save_dual
from capelet.encoders.dual_networks import build
from capelet.evaluation.inversion import Inversion
from capelet.release import PrivateEncoder

WORDS = [f"w{chr(97 + number // 26)}{chr(97 + number % 26)}" for number in range(80)]


def texts(count: int, seed: int) -> Iterator[str]:
    random = np.random.default_rng(seed)
    for _ in range(count):
        yield " ".join(random.choice(WORDS, size=random.integers(3, 6), replace=False))


@pytest.fixture(scope="module", params=["transformer", "lstm"])
def dual(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DualEncoder:
    """A network with random weights: it was trained to hide nothing, and has nothing learnt."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build(request.param, len(SPECIAL) + len(WORDS), 64, 1, 64)
    folder = save_dual(
        tmp_path_factory.mktemp("dual") / request.param, network, [*SPECIAL, *WORDS], 12, {}
    )
    return DualEncoder(str(folder))


def test_relaxed_texts_of_one_word_each_are_texts(dual: DualEncoder) -> None:
    """A softmax that is sure is a word: the reader gives the encoder's own vector."""
    some = list(texts(20, 1))
    model = open_encoder(dual)
    assert isinstance(model, OpenDual)
    ids = [ids for ids, _ in model.tokens(some)]
    assert [model.decode(row) for row in ids] == some
    lengths = torch.tensor([len(row) for row in ids])
    soft = torch.zeros(len(some), int(lengths.max()), 64)
    for row, numbers in enumerate(ids):
        soft[row, : len(numbers)] = model.input_table()[numbers]
    with torch.no_grad():
        released, lowest = (model.reader(lengths, layer)(soft).numpy() for layer in (None, 0))
    np.testing.assert_allclose(released, dual.encode(some), atol=1e-5)
    np.testing.assert_allclose(lowest, model.means(some, [0])[0], atol=1e-5)


def test_words_are_read_back_from_weights(dual: DualEncoder) -> None:
    attack = Inversion(
        attacks=("sparse-coding", "relaxation"), victims=30, options={"relaxation": {"steps": 150}}
    )
    findings = attack.measure(
        list(texts(30, 2)), PrivateEncoder(dual), auxiliary=list(texts(400, 3))
    )
    blind = findings.value(kind="inversion-reference", metric="f1", attacker="most-frequent")
    for name in attack.attacks:
        (row,) = findings.select(kind="inversion", metric="f1", attacker=name, subgroup=None)
        assert row.value > blind + 0.2, (name, row.value, blind)
