"""The first layers of a transformer: what the whole model holds at that depth."""

from __future__ import annotations

import numpy as np
import pytest

from capelet.encoders import load
from capelet.encoders.export import cosines
from capelet.encoders.folders import content_hash
from capelet.encoders.layers import cut_folder, parse_cut
from capelet.encoders.packages import minilm_folder
from capelet.encoders.transformer import TorchEngine, sentence_transformer
from capelet.errors import EncoderError
from capelet.interfaces import silent

TEXTS = ["A quiet hotel near the lake.", "The goalkeeper was hurt in the second half."]


def test_only_names_with_layers_are_cut() -> None:
    assert parse_cut("minilm:layers=2") == ("minilm", 2)
    assert parse_cut("minilm") is None and parse_cut("minilm:layers=") is None


def test_two_layers_give_what_the_model_holds_after_its_second_layer() -> None:
    """The theorem: a cut encoder is the mean of the whole model's hidden states at that depth."""
    import torch

    whole = sentence_transformer(minilm_folder(), device="cpu")
    batch = whole.preprocess(TEXTS)
    inputs = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
    with torch.no_grad():
        hidden = whole[0].auto_model(**inputs, output_hidden_states=True).hidden_states
    mask = inputs["attention_mask"][:, :, None]
    means = [((state * mask).sum(1) / mask.sum(1)).numpy() for state in hidden]
    cut = TorchEngine(cut_folder(minilm_folder(), 2)).encode(TEXTS, silent)
    assert cosines(cut, means[2]).min() > 0.99999
    # The control: at any other depth they are others.
    assert max(cosines(cut, means[place]).max() for place in (1, 3, 6)) < 0.99


def test_all_layers_are_the_whole_encoder_and_fewer_have_another_fingerprint() -> None:
    whole, all_layers = load("minilm", "torch"), load("minilm:layers=6", "torch")
    assert np.allclose(whole.encode(TEXTS), all_layers.encode(TEXTS), atol=1e-6)
    names = {load(f"minilm:layers={count}", "torch").fingerprint for count in (1, 2)}
    assert len({*names, whole.fingerprint}) == 3
    # Made once, and equal wherever it is made.
    assert content_hash(cut_folder(minilm_folder(), 1)) == content_hash(
        load("minilm:layers=1").place()  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("count", [0, 7])
def test_layers_that_there_are_not_are_refused(count: int) -> None:
    with pytest.raises(EncoderError, match="the encoder has 6"):
        load(f"minilm:layers={count}", "torch").encode(TEXTS)
    with pytest.raises(EncoderError, match="unknown encoder 'wordllama:layers=2'"):
        load("wordllama:layers=2")
