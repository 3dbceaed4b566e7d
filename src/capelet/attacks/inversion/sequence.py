"""Sequence inversion: a whole sentence read back from its vector, in order.

Threat model: black box. The attacker can send any text through the same release and holds the
victims' released vectors; it knows neither weights nor tokens. A decoder proposes sentences from
the vector; each is sent through the release, and from the vector it gets, the gap to the target and
the sentence itself the same decoder writes better ones, round after round (as vec2text does: Morris
et al. 2023, Text Embeddings Reveal (Almost) As Much As Text). Between rounds single words are
exchanged, put in or left out, with `multi-label`'s words as candidates, and what comes nearer in
cosine stays.

Beyond that paper, and what makes some 100,000 texts of one's own enough: the release answers any
text, so the decoder also learns from texts put together by the attacker, without end.

How much the cosine counts against how likely the decoder finds a sentence, and `multi-label` its
words, is tuned on held-back auxiliary texts: under heavy noise the nearest vector says little.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from capelet.attacks.inversion.blackbox import Inverter, held_back, standard_tensor
from capelet.attacks.inversion.candidate_search import CandidateSearch, Neighbours, Read, Weights
from capelet.attacks.inversion.decoder import PAD, REAL, SYNTHETIC, Decoder, Pieces, crop
from capelet.attacks.inversion.rewriting import Maker
from capelet.attacks.inversion.word_sets import Floats, Vocabulary, draws_of
from capelet.interfaces import Progress, silent
from capelet.numerics import cosines, standard_scale
from capelet.training.device import choose, half_precision, seeded_fork
from capelet.training.loop import Descent, StoppingRule, run

if TYPE_CHECKING:
    from torch import Tensor

Encode = Callable[[Sequence[str]], Floats]
# Pieces, decoder and weights are all learnt from these.
_LEAST_TEXTS = 100
_CHUNK = 32_768  # auxiliary texts of one round of training


@dataclass(frozen=True)
class SequenceInversion:
    """How large the decoder is, how long it learns, and how widely it searches.

    Training ends after `epochs` passes or `minutes`, whichever comes first. `synthetic` is how many
    texts put together by the attacker stand beside each of its own; in the last `correcting` share
    of training the decoder also learns to correct. Per victim `samples` sentences are proposed; in
    each of `rounds` the best `beam` get `variants` corrections each, and then `climbs` times the
    best two get `edits` edits each. So many `victims` are read in one run. The defaults fit a CPU
    and some thousand texts.
    """

    width: int = 256
    layers: int = 3
    prefix: int = 4
    pieces: int = 8_000
    longest: int = 48
    dropout: float = 0.1
    epochs: float = 15
    minutes: float = 6
    synthetic: float = 1.0
    correcting: float = 0.4
    batch: int = 128
    learning_rate: float = 7e-4
    samples: int = 16
    beam: int = 3
    rounds: int = 3
    variants: int = 4
    climbs: int = 2
    edits: int = 40
    tune: int = 100
    victims: int = 100
    seed: int = 0
    device: str | None = None

    @classmethod
    def large(cls, **options: Any) -> SequenceInversion:
        """For a GPU and some 100,000 texts."""
        big: dict[str, Any] = {
            "width": 512,
            "layers": 6,
            "prefix": 8,
            "pieces": 12_000,
            "epochs": 60,
            "minutes": 12,
            "batch": 512,
            "samples": 48,
            "beam": 4,
            "rounds": 4,
            "variants": 8,
            "edits": 250,
            "tune": 150,
            "victims": 500,
        }
        return cls(**{**big, **options})

    def fit(
        self,
        vectors: Floats,
        texts: Sequence[str],
        encode: Encode,
        words: Inverter,
        vocabulary: Vocabulary,
        progress: Progress = silent,
    ) -> SequenceInverter:
        """Learn from released vectors of own texts; `encode` sends further ones.

        `words` is a black-box attacker fitted on the same texts: it names candidates for single
        words, and how likely each is.
        """
        draws = draws_of(vectors, len(texts), _LEAST_TEXTS)
        # What `words` has not learnt either: else its beliefs there would be too good to tune on.
        spare, fit = held_back(words.attack.seed, len(texts))
        tuning, fit = spare[: self.tune], np.concatenate([spare[self.tune :], fit])
        device = choose(self.device)
        own = [" ".join(texts[row].split()) for row in fit.tolist()]
        # Where the release does not tell capitals from small letters, pieces are not spent on both.
        pieces = Pieces.of(
            own, most=self.pieces, longest=self.longest, lower=not _tells_case(encode, own)
        )
        with seeded_fork(self.seed, device):
            training = _Training(self, draws[:, fit], own, pieces, encode, device, progress)
            training.run()
        inverter = SequenceInverter(
            self,
            training.decoder.eval(),
            pieces,
            training.standard,
            encode,
            words,
            vocabulary,
            Neighbours(draws[0][fit], own),
            Weights(),
        )
        return inverter.tune_weights(draws[0][tuning], [texts[row] for row in tuning.tolist()])


@dataclass(frozen=True, eq=False)
class SequenceInverter:
    """A fitted attacker: vectors in, sentences out. `weights` are what a score adds up."""

    attack: SequenceInversion
    decoder: Decoder
    pieces: Pieces
    standard: tuple[Floats, Floats]
    encode: Encode
    words: Inverter
    vocabulary: Vocabulary
    neighbours: Neighbours
    weights: Weights

    def read(self, vectors: Floats, progress: Progress = silent) -> list[Read]:
        """For each vector the sentence it is thought to come from, and how near it came."""
        return self._run_search(vectors, progress).best(self.weights)

    def tune_weights(self, vectors: Floats, texts: Sequence[str]) -> SequenceInverter:
        """The same attacker with the weights that read held-back auxiliary texts best.

        Chosen first among proposals, so that the search runs with it, and again after the search.
        """
        first = self._search(vectors)
        first.propose(self.attack.samples, self._drafts(vectors))
        rough = replace(self, weights=first.best_weights(texts))
        return replace(rough, weights=rough._run_search(vectors).best_weights(texts))

    def _drafts(self, vectors: Floats) -> list[list[str]]:
        """More sentences to begin from: the nearest own texts, and the words that `words` reads."""
        sets = self.words.predict(vectors)
        near = self.neighbours(vectors)
        for row, texts in enumerate(near):
            ids = sets.ids[sets.offsets[row] : sets.offsets[row + 1]]
            texts.append(" ".join(self.vocabulary.words[word] for word in ids))
        return near

    def _search(self, vectors: Floats) -> CandidateSearch:
        device = next(self.decoder.parameters()).device
        ids, chances, sizes = self.words.rank(vectors)
        words = [[self.vocabulary.words[word] for word in row] for row in ids.tolist()]
        return CandidateSearch(
            self.decoder,
            self.pieces,
            self.encode,
            lambda some: standard_tensor(some, *self.standard, device),
            vectors,
            [dict(zip(a, b, strict=True)) for a, b in zip(words, chances.tolist(), strict=True)],
            sizes,
            self.attack.seed,
        )

    def _run_search(self, vectors: Floats, progress: Progress = silent) -> CandidateSearch:
        attack, search = self.attack, self._search(vectors)
        search.propose(attack.samples, self._drafts(vectors), progress)
        whole = attack.rounds * (1 + attack.climbs)
        for turn in range(attack.rounds):
            search.correct(attack.beam, attack.variants, self.weights)
            progress("correcting sentences", turn * (1 + attack.climbs) + 1, whole)
            for climb in range(attack.climbs):
                search.climb(2, attack.edits, self.weights)
                progress("correcting sentences", turn * (1 + attack.climbs) + 2 + climb, whole)
        return search


class _Batch(NamedTuple):
    """Which rows of a round's material are stepped on; `drafts` where the decoder corrects."""

    targets: Tensor
    pieces: Tensor
    openers: Tensor
    drafts: tuple[Tensor, Tensor] | None
    rows: Tensor


class _Training:
    """The training of one decoder, round by round: what an epoch is in the one loop."""

    def __init__(
        self,
        attack: SequenceInversion,
        draws: Floats,
        texts: list[str],
        pieces: Pieces,
        encode: Encode,
        device: torch.device,
        progress: Progress,
    ) -> None:
        self.attack, self.pieces, self.encode, self.device = attack, pieces, encode, device
        self.progress = progress
        self.standard = standard_scale(draws.reshape(-1, draws.shape[2]))
        self.inputs = torch.stack([standard_tensor(draw, *self.standard, device) for draw in draws])
        self.rows = torch.from_numpy(pieces.rows(texts)).to(device)
        self.maker = Maker(texts, attack.seed)
        self.decoder = Decoder(
            draws.shape[2],
            len(pieces),
            pieces.longest,
            width=attack.width,
            layers=attack.layers,
            prefix=attack.prefix,
            dropout=attack.dropout,
        ).to(device)
        self.optimiser = torch.optim.AdamW(
            self.decoder.parameters(),
            lr=attack.learning_rate,
            weight_decay=0.01,
            betas=(0.9, 0.98),
            fused=device.type == "cuda",
        )
        # Few texts in large batches would be too few steps: a weak attacker looks like privacy.
        self.batch = min(attack.batch, max(16, len(texts) // 40))
        self.start = time.monotonic()
        self.spare: tuple[Tensor, Tensor] | None = None
        self.chunk = min(len(texts), _CHUNK)
        self.rounds = max(math.ceil(attack.epochs * len(texts) / self.chunk), 1)
        # What is left of this pass over the texts.
        self.order = torch.randperm(len(texts), device=device)

    def run(self) -> None:
        descent = Descent(self.decoder, self.optimiser, self._round, self._loss, max_grad_norm=1.0)
        run(descent, StoppingRule(self.rounds, minutes=self.attack.minutes))
        self.progress("sequence", 1000, 1000)

    def _share(self, number: float) -> float:
        """How much of the training is over after so many rounds, by rounds or by time."""
        # By time too, so that the rate has come down when the minutes are over.
        share_of_time = (time.monotonic() - self.start) / (60 * self.attack.minutes)
        return min(max(number / self.rounds, share_of_time), 1.0)

    def _round(self, number: int) -> Iterator[_Batch]:
        """The batches of a round; drafts are written once its first half is learnt."""
        if len(self.order) < self.chunk:
            self.order = torch.randperm(len(self.rows), device=self.device)
        some, self.order = self.order[: self.chunk], self.order[self.chunk :]
        correcting = self._share(number) >= 1 - self.attack.correcting
        # One of the noise draws of each text, another one in each round.
        own = self.inputs[torch.randint(len(self.inputs), (len(some),), device=self.device), some]
        new, rows = self._synthesise(round(self.attack.synthetic * len(some)))
        targets, pieces = torch.cat([own, new]), torch.cat([self.rows[some], rows])
        # The decoder is told which texts are of people, and at the attack writes one of those.
        openers = torch.full((len(pieces),), SYNTHETIC, device=self.device)
        openers[: len(some)] = REAL
        width = 0.5 if correcting else 1.0
        yield from self._batches(targets, pieces, openers, None, (number, width))
        if correcting:
            half = torch.randperm(len(pieces), device=self.device)[: len(pieces) // 2]
            drafts = self._drafts(targets[half], half < len(some))
            span = (number + width, width)
            yield from self._batches(targets[half], pieces[half], openers[half], drafts, span)
            # A draft and its vector are one more text to learn from, nearest to what is written.
            self.spare = (drafts[0], drafts[1])

    def _synthesise(self, count: int) -> tuple[Tensor, Tensor]:
        """Texts put together by the attacker (and the last drafts), sent through the release."""
        drafts = self.spare
        if drafts is not None:
            count = max(count - len(drafts[0]), count // 3)
        texts = self.maker(count)
        vectors = self._encode(texts)
        rows = torch.from_numpy(self.pieces.rows(texts)).to(self.device)
        if drafts is not None:
            return torch.cat([vectors, drafts[0]]), torch.cat([rows, drafts[1]])
        return vectors, rows

    def _encode(self, texts: Sequence[str]) -> Tensor:
        if not len(texts):
            return self.inputs[0, :0]
        return standard_tensor(self.encode(texts), *self.standard, self.device)

    def _drafts(self, targets: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """A hypothesis for each target, and the vector that the release gives it.

        The decoder has learnt its own texts partly by heart and would write drafts better than a
        victim's: there it is shown a blurred vector.
        """
        # Standardised coordinates have deviation 1.
        noisy = targets + 0.4 * torch.randn_like(targets) * own[:, None]
        parts = []
        self.decoder.eval()
        with torch.no_grad(), half_precision(self.device):
            for start in range(0, len(targets), 8192):
                context = self.decoder.context(noisy[start : start + 8192])
                heat = torch.rand(len(context), device=self.device) * 0.9
                parts.append(self.decoder.write(context, heat))
        self.decoder.train()
        texts = self.pieces.texts(torch.cat(parts).cpu().numpy())
        rows = torch.from_numpy(self.pieces.rows(texts)).to(self.device)
        return self._encode([text or "." for text in texts]), rows

    def _batches(
        self,
        targets: Tensor,
        pieces: Tensor,
        openers: Tensor,
        drafts: tuple[Tensor, Tensor] | None,
        span: tuple[float, float],
    ) -> Iterator[_Batch]:
        """Batches by length until time is over, one at least; sets the rate of each."""
        groups = list(_by_length(pieces, self.batch))
        for number, rows in enumerate(groups):
            share = self._share(span[0] + span[1] * number / len(groups))
            if share >= 1 and number:
                break
            for group in self.optimiser.param_groups:
                group["lr"] = self.attack.learning_rate * _pace(share)
            yield _Batch(targets, pieces, openers, drafts, rows)
            self.progress("sequence", min(int(1000 * share), 999), 1000)

    def _loss(self, batch: _Batch) -> Tensor:
        rows, drafts = batch.rows, batch.drafts
        target, vectors = crop(batch.pieces[rows]), batch.targets[rows]
        with half_precision(self.device):
            if drafts is None:
                context = self.decoder.context(vectors)
            else:
                context = self.decoder.context(
                    vectors, vectors - drafts[0][rows], crop(drafts[1][rows])
                )
            inputs = torch.cat([batch.openers[rows, None], target[:, :-1]], dim=1)
            scores = self.decoder(context, inputs)
            return functional.cross_entropy(
                scores.float().flatten(0, 1), target.flatten(), ignore_index=PAD
            )


def _by_length(pieces: Tensor, batch: int) -> Iterator[Tensor]:
    """Batches of rows of like length, in random order; each row once."""
    lengths = (pieces != PAD).sum(dim=1)
    order = torch.randperm(len(pieces), device=pieces.device)
    whole = []
    # Sorted by length within sixteen batches: little padding, and batches still differ in each
    # round.
    for start in range(0, len(order), 16 * batch):
        some = order[start : start + 16 * batch]
        whole += list(torch.split(some[lengths[some].argsort()], batch))
    for number in torch.randperm(len(whole)).tolist():
        yield whole[number]


def _pace(share: float) -> float:
    """The share of the rate: up over the first twentieth, then down as a cosine."""
    if share < 0.05:
        return max(share / 0.05, 0.02)
    return max(0.5 * (1 + math.cos(math.pi * (share - 0.05) / 0.95)), 0.01)


def _tells_case(encode: Encode, texts: Sequence[str]) -> bool:
    """Whether the release tells capitals from small letters, beyond what its noise does."""
    some = list(texts[:64])
    first, again, small = encode(some), encode(some), encode([text.lower() for text in some])
    # Two releases of the same texts say how much noise alone changes.
    return bool(cosines(first, small).mean() < cosines(first, again).mean() - 1e-3)
