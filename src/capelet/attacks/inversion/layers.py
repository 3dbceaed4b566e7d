"""What a white-box attacker holds of a transformer: tokens, the token table, every layer's mean.

The sentence vector of layer l is the mean of the hidden states after l layers over all real tokens,
special ones included, as mean pooling takes it; layer 0 is the embedding layer's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from capelet.attacks.inversion.words import Floats
from capelet.errors import EncoderError
from capelet.interfaces import Encoder, Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

# Victims are short: the mean over these positions is a token as it usually stands.
_POSITIONS = 16


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A transformers model and its fast tokenizer, opened for white-box access."""

    model: Any
    tokenizer: Any
    limit: int = 256

    @classmethod
    def of(cls, encoder: Encoder) -> OpenModel:
        """Open a transformer encoder; refuses, before any work, one without weights to read."""
        from capelet.encoders import TransformerEncoder
        from capelet.encoders.folders import transformer_folder
        from capelet.encoders.transformer import sentence_transformer

        inner = getattr(encoder, "inner", encoder)  # behind the cache
        if not isinstance(inner, TransformerEncoder):
            raise EncoderError(
                f"{encoder.name!r} gives no weights and gradients, which a white-box attack on "
                "layers needs; use the black-box attacks 'multi-label' or 'multi-set'"
            )
        whole = sentence_transformer(transformer_folder(inner.name))
        if not getattr(whole.tokenizer, "is_fast", False):
            raise EncoderError(
                f"{encoder.name!r} has no fast tokenizer, which white-box inversion needs; "
                "use the black-box attacks 'multi-label' or 'multi-set'"
            )
        first: Any = whole[0]
        model: Any = getattr(first, "auto_model", None) or first.model
        return cls(model.eval(), whole.tokenizer, whole.max_seq_length or 512)

    @cached_property
    def table(self) -> Floats:
        """Each token as the embedding layer gives it, on average over the first positions.

        So layer 0 is, but for special tokens, a mean of rows. A model without an embedding layer to
        call (`model.embeddings`) gives its input token vectors.
        """
        import torch

        weight = self.model.get_input_embeddings().weight.detach()
        # A token's vector alone is not what layer 0 averages: positions and a normalisation follow
        # it.
        embed = getattr(self.model, "embeddings", None)
        if embed is None:
            return np.asarray(weight.cpu().numpy())
        with torch.inference_mode():
            ids = torch.arange(len(weight), device=weight.device)[:, None].expand(-1, _POSITIONS)
            rows = [embed(some).mean(dim=1) for some in torch.split(ids, 1024)]
            return np.asarray(torch.cat(rows).float().cpu().numpy())

    @property
    def layers(self) -> int:
        return int(self.model.config.num_hidden_layers)

    def tokens(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids and character spans of each text, without special tokens."""
        if not len(texts):
            return []
        encoding = self.tokenizer(
            list(texts),
            add_special_tokens=False,
            return_offsets_mapping=True,
            truncation=True,
            # Room for the special tokens, which stand in the encoder's input.
            max_length=self.limit - 2,
        )
        return list(zip(encoding["input_ids"], encoding["offset_mapping"], strict=True))

    def words(self) -> list[str]:
        """The words that are one token each."""
        return [token.lstrip("▁Ġ").lower() for token in self.tokenizer.get_vocab()]

    def means(
        self, texts: Sequence[str], layers: Sequence[int], progress: Progress = silent
    ) -> dict[int, Floats]:
        """The mean-pooled sentence vectors of these layers, in the order of the texts."""
        import torch

        width = self.model.config.hidden_size
        device = next(self.model.parameters()).device
        answer = {layer: np.zeros((len(texts), width), dtype=np.float32) for layer in layers}
        # Texts of like length share a batch; the longest come first, where memory would fail at
        # once.
        order = np.argsort([-len(text) for text in texts], kind="stable")
        batch = 1024 if device.type == "cuda" else 64
        with torch.inference_mode():
            for start in range(0, len(order), batch):
                rows = order[start : start + batch]
                batch_tokens = self.tokenizer(
                    [texts[row] for row in rows],
                    padding=True,
                    truncation=True,
                    max_length=self.limit,
                    return_tensors="pt",
                ).to(device)
                states = self.model(**batch_tokens, output_hidden_states=True).hidden_states
                for layer in layers:
                    mean = mean_of(states[layer], batch_tokens["attention_mask"])
                    answer[layer][rows] = mean.float().cpu().numpy()
                progress("reading layers", min(start + batch, len(order)), len(order))
        return answer


@dataclass(frozen=True, eq=False)
class OpenTable:
    """A static encoder's table and tokenizer: all that there is to hold of it."""

    table: Floats
    tokenizer: Any

    def tokens(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Token ids and character spans of each text."""
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        # A tokenizer may number more tokens than the table has rows.
        last = len(self.table) - 1
        return [([min(number, last) for number in one.ids], one.offsets) for one in encodings]

    def words(self) -> list[str]:
        """The words that are one token each."""
        return [token.lstrip("▁Ġ").lower() for token in self.tokenizer.get_vocab()]


def open_encoder(encoder: Encoder) -> OpenModel | OpenTable:
    """What a white-box attacker holds of this encoder; refuses one that shows nothing."""
    from capelet.encoders import StaticEncoder

    inner = getattr(encoder, "inner", encoder)
    if isinstance(inner, StaticEncoder):
        return OpenTable(*inner.open_table())
    return OpenModel.of(encoder)


def mean_of(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens."""
    weight = mask[:, :, None].to(states.dtype)
    return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
