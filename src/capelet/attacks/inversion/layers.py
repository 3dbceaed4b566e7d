"""What a white-box attacker holds of a transformer: tokens, the token table, every layer's mean.

The sentence vector of layer l is the mean of the hidden states after l layers over all real tokens,
special ones included, as mean pooling takes it; layer 0 is the embedding layer's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from capelet.attacks.inversion.word_sets import Floats
from capelet.data.text import sign_spans
from capelet.errors import EncoderError
from capelet.interfaces import Encoder, Progress, silent

if TYPE_CHECKING:
    from torch import Tensor

    from capelet.encoders.dual import DualEncoder

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
        from capelet.encoders.transformer import sentence_transformer

        inner = getattr(encoder, "inner", encoder)  # behind the cache
        if not isinstance(inner, TransformerEncoder):
            raise EncoderError(
                f"{encoder.name!r} gives no weights and gradients, which a white-box attack on "
                "layers needs; use the black-box attacks 'multi-label' or 'multi-set'"
            )
        whole = sentence_transformer(inner.place())
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

    def decode(self, ids: list[int]) -> str:
        """The text of these tokens."""
        return str(self.tokenizer.decode(ids))

    def input_table(self) -> Tensor:
        """The vector of each token as it enters the network."""
        table: Tensor = self.model.get_input_embeddings().weight.detach()
        return table

    def reader(self, lengths: Tensor, layer: int | None) -> Callable[[Tensor], Tensor]:
        """From relaxed texts of these lengths to the mean of a layer, the last by default."""
        frame = _Frame(self, lengths)

        def read(soft: Tensor) -> Tensor:
            inputs, mask = frame.around(soft)
            states = self.model(
                inputs_embeds=inputs, attention_mask=mask, output_hidden_states=True
            ).hidden_states
            return mean_of(states[-1 if layer is None else layer], mask)

        return read

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


@dataclass(frozen=True, eq=False)
class OpenDual:
    """A dual encoder (Leakage §6): its words, their vectors, and a network with gradients.

    Its tokens are whole words and signs. Of layers it shows the lowest, the mean of word vectors,
    and what is released.
    """

    encoder: DualEncoder
    layers: int = 0

    @property
    def model(self) -> Any:
        return self.encoder.load_network()

    @cached_property
    def table(self) -> Floats:
        return np.asarray(self.input_table().float().cpu().numpy())

    def input_table(self) -> Tensor:
        """The vector of each word as it enters the network."""
        table: Tensor = self.model.table.weight.detach()
        return table

    def words(self) -> list[str]:
        """The words that it knows."""
        return [word for word in self.encoder.words if word.isalpha()]

    def decode(self, ids: list[int]) -> str:
        """The words of these numbers, with spaces between."""
        return " ".join(self.encoder.words[number] for number in ids)

    def tokens(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Word numbers and character spans of each text."""
        numbers = self.encoder.number(texts)
        return [
            (some, sign_spans(text)[: len(some)]) for some, text in zip(numbers, texts, strict=True)
        ]

    def means(
        self, texts: Sequence[str], layers: Sequence[int], progress: Progress = silent
    ) -> dict[int, Floats]:
        """The mean word vector of each text: layer 0, the only one below the release."""
        # A text without a word is its padding, whose vector is 0.
        rows = [self.table[ids or [0]].mean(axis=0) for ids, _ in self.tokens(texts)]
        return {layer: np.array(rows, dtype=np.float32) for layer in layers}

    def reader(self, lengths: Tensor, layer: int | None) -> Callable[[Tensor], Tensor]:
        """From relaxed texts of these lengths to the released vector, or to their mean word."""
        import torch

        def read(soft: Tensor) -> Tensor:
            real = torch.arange(soft.shape[1], device=soft.device)[None, :] < lengths[:, None]
            if layer is not None:
                return mean_of(soft, real)
            vector: Tensor = self.model.read(soft, real)
            return vector

        return read


class _Frame:
    """The special tokens that the tokenizer puts before and after a text of each length."""

    def __init__(self, model: OpenModel, lengths: Tensor) -> None:
        import torch

        whole = model.tokenizer("a", add_special_tokens=True)["input_ids"]
        plain = model.tokenizer("a", add_special_tokens=False)["input_ids"]
        before = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
        table = model.model.get_input_embeddings().weight.detach()
        self.before = table[torch.tensor(whole[:before], dtype=torch.long, device=table.device)]
        self.after = table[
            torch.tensor(whole[before + len(plain) :], dtype=torch.long, device=table.device)
        ]
        self.lengths = lengths

    def around(self, soft: Tensor) -> tuple[Tensor, Tensor]:
        """The relaxed texts with special tokens in place, and the mask of real positions."""
        import torch

        rows, longest, width = soft.shape
        head, tail = len(self.before), len(self.after)
        total = longest + head + tail
        place = torch.arange(total, device=soft.device)[None, :]
        end = (head + self.lengths)[:, None]
        inputs = torch.cat(
            [self.before.expand(rows, head, width), soft, soft.new_zeros(rows, tail, width)], dim=1
        )
        for at in range(tail):
            inputs = torch.where((place == end + at)[:, :, None], self.after[at], inputs)
        return inputs, (place < end + tail).to(torch.long)


def open_encoder(encoder: Encoder) -> OpenModel | OpenTable | OpenDual:
    """What a white-box attacker holds of this encoder; refuses one that shows nothing."""
    from capelet.encoders import StaticEncoder
    from capelet.encoders.dual import DualEncoder

    inner = getattr(encoder, "inner", encoder)
    if isinstance(inner, DualEncoder):
        return OpenDual(inner)
    if isinstance(inner, StaticEncoder):
        return OpenTable(*inner.open_table())
    return OpenModel.of(encoder)


def mean_of(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over real tokens."""
    weight = mask[:, :, None].to(states.dtype)
    return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
