"""The last layers of a transformer encoder, ready to be trained over hidden states kept in memory.

What lies below the trained layers does not change, so it is computed once: a text costs a step no
more than its last layers. The states are kept as 16-bit numbers, some 0.8 kB a token for MiniLM.
Only encoders whose layers take a hidden state and a mask and nothing else (BERT and its kin) can be
tuned; whether one is such is tried on a few texts, not guessed from its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from capelet.encoders.export import cosines
from capelet.encoders.folders import copy_model
from capelet.encoders.own import TunedEncoder, unwrap
from capelet.encoders.transformer import TransformerEncoder, sentence_transformer
from capelet.errors import EncoderError, name_field
from capelet.files import TemporaryFolder, cache_folder, private_folder
from capelet.interfaces import Encoder, Progress, silent
from capelet.training.networks import Front

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# The most layers that may be trained.
LAYERS = 6
_ROWS = 32  # texts that go through the layers together
_EXACT = 0.999  # least cosine of the layers' vectors with the encoder's own


class TopLayers(Front):
    """Vectors of rows by their number: kept hidden states through the last layers and the pooling.

    There is no dropout in it, so that the same seed gives the same training.
    """

    pace = 0.05  # of the rate of a map that begins at random: 5e-5 is usual for such layers

    def __init__(
        self,
        source: TransformerEncoder,
        layers: Mapping[int, nn.Module],
        after: Sequence[Any],
        states: Sequence[Tensor],
    ) -> None:
        super().__init__()
        self.source, self.states = source, states
        self.layers = nn.ModuleDict({str(place): layer for place, layer in layers.items()})
        self._after = list(after)  # pooling and normalisation have nothing to learn

    def train(self, mode: bool = True) -> TopLayers:
        super().train(False)
        return self

    def forward(self, rows: Tensor) -> Tensor:
        numbers = rows.cpu()
        lengths = torch.tensor([len(self.states[int(row)]) for row in numbers])
        # Texts of like length share a block, with little padding; `back` restores the order.
        order = lengths.argsort()
        vectors = [self._through(numbers[some]) for some in torch.split(order, _ROWS)]
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return torch.cat(vectors)[back.to(vectors[0].device)]

    def _through(self, numbers: Tensor) -> Tensor:
        rows = [self.states[int(row)] for row in numbers]
        device = next(self.parameters()).device
        hidden = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device, torch.float32)
        lengths = torch.tensor([len(item) for item in rows], device=device)
        mask = torch.arange(hidden.shape[1], device=device)[None] < lengths[:, None]
        # Added to the scores of padding: e^(−1e9) is 0, and no row can become −∞ − (−∞) = NaN.
        away = torch.zeros(mask.shape, device=device).masked_fill(~mask, -1e9)[:, None, None]
        for layer in self.layers.values():
            # A tuple or a tensor, as the version of transformers has it.
            out = layer(hidden, away)
            hidden = out[0] if isinstance(out, tuple) else out
        features: dict[str, Any] = {"token_embeddings": hidden, "attention_mask": mask.long()}
        for module in self._after:
            features = module(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors

    def encoder(self) -> TunedEncoder:
        """The whole encoder with the layers as they are now, in a folder of the cache."""
        weights = {
            f"encoder.layer.{name}": tensor.detach().cpu().contiguous()
            for name, tensor in self.layers.state_dict().items()
        }
        copy = _write_copy(self.source.place(), weights)
        return TunedEncoder(copy.path, self.source.backend, temporary=copy)


def top_layers(
    encoder: Encoder, texts: Sequence[str], count: int, progress: Progress = silent
) -> TopLayers:
    """The last `count` layers of the encoder over these texts; an error where it has none."""
    source = tunable(encoder, count)
    # Attention by plain products, and on the processor: the loop moves the layers where it works.
    model = sentence_transformer(source.place(), device="cpu", attention="eager")
    blocks = _blocks(model, source.name, count)
    below = len(blocks) - count
    states = _states(model, texts, below, progress)
    last = {place: blocks[place] for place in range(below, len(blocks))}
    top = TopLayers(source, last, list(model)[1:], states).eval()
    some = np.linspace(0, len(texts) - 1, min(len(texts), 16)).astype(int)
    with torch.no_grad():
        mine = top(torch.tensor(some)).numpy()
    theirs = encoder.encode([texts[row] for row in some])
    if not len(some) or float(cosines(mine, theirs).min()) < _EXACT:
        raise EncoderError(
            f"the encoder {source.name!r} cannot be tuned: its last layers need more than hidden "
            f"states and a mask; leave {name_field('tune_layers')} out"
        )
    return top


def tunable(encoder: Encoder | None, count: int) -> TransformerEncoder:
    """The transformer behind the encoder; an error where there are no weights to train."""
    source = unwrap(encoder) if encoder is not None else None
    if not isinstance(source, TransformerEncoder):
        name = "ready vectors have" if source is None else f"the encoder {source.name!r} has"
        raise EncoderError(
            f"{name} no layers to train; {name_field('tune_layers')} needs a transformer such as "
            "minilm"
        )
    if not 1 <= count <= LAYERS:
        raise EncoderError(
            f"{name_field('tune_layers')} is {count}; it must lie between 1 and {LAYERS}"
        )
    if source.backend == "int8":
        raise EncoderError(
            f"an encoder with 8-bit weights cannot be tuned; take another {name_field('backend')}"
        )
    return source


def _blocks(model: SentenceTransformer, name: str, count: int) -> nn.ModuleList:
    inner = getattr(model[0], "auto_model", None)
    blocks = getattr(getattr(inner, "encoder", None), "layer", None)
    if not isinstance(blocks, nn.ModuleList):
        raise EncoderError(f"the encoder {name!r} cannot be tuned: it has no stack of layers")
    if count > len(blocks):
        raise EncoderError(
            f"{name_field('tune_layers')} is {count}, and the encoder {name!r} has {len(blocks)} "
            "layers"
        )
    return blocks


def _states(
    model: SentenceTransformer, texts: Sequence[str], below: int, progress: Progress
) -> list[Tensor]:
    """What goes into the first trained layer, for each text, without the padding."""
    order = np.argsort([len(text) for text in texts], kind="stable")
    states: list[Tensor] = [torch.empty(0)] * len(texts)
    inner: Any = model[0].auto_model
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        batch = model.preprocess([texts[row] for row in rows])
        inputs = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
        with torch.no_grad():
            hidden = inner(**inputs, output_hidden_states=True).hidden_states[below]
        for row, state, mask in zip(rows, hidden, inputs["attention_mask"], strict=True):
            states[row] = state[mask.bool()].to(torch.float16)
        progress("reading the encoder", start + len(rows), len(texts))
    return states


def _write_copy(source: Path, weights: Mapping[str, Tensor]) -> TemporaryFolder:
    """A copy of the model folder with these tensors in it, which goes when nobody needs it."""
    from safetensors.torch import load_file, save_file

    private_folder(cache_folder())
    # Weights of private texts: they may outlive this process only where the user saves them.
    copy = TemporaryFolder(private_folder(cache_folder() / "tuned"), "tuned")
    folder = copy.path
    missing = set(weights)
    for path in copy_model(source, folder, lambda path: path.suffix == ".safetensors"):
        tensors = load_file(path)
        for name, tensor in weights.items():
            # Folders differ in what precedes a name ("bert."); what follows is the same.
            for key in [key for key in tensors if key == name or key.endswith(f".{name}")]:
                tensors[key] = tensor.to(tensors[key].dtype)
                missing.discard(name)
        save_file(tensors, folder / path.relative_to(source), {"format": "pt"})
    if missing:
        raise EncoderError(f"the weights of {sorted(missing)[0]!r} are not in the model folder")
    return copy
