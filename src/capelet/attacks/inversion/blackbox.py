"""Black-box inversion: learn on released vectors of own texts which words a vector comes from.

Threat model: the attacker can send texts of its own through the same release (so it trains on
vectors with the same noise, several draws of each text if it likes) and holds the victims' released
vectors. It knows neither weights nor tokens. `MultiLabel` asks for every word at once (Song,
Raghunathan 2020, eq. 8); `MultiSet` names one word after another, each with the words named so far
in view (eq. 9). A set has no order, so what was named enters as a sum.

Both give a probability that the next word is right; how many words to name is the count with the
best expected F1, tuned on held-back auxiliary texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from capelet.attacks.inversion.word_sets import (
    MOST,
    Floats,
    Ids,
    Vocabulary,
    WordSets,
    best_cut,
    cut_sets,
    draws_of,
    tuned_cut,
)
from capelet.errors import DataError
from capelet.interfaces import Progress, silent
from capelet.numerics import standard_scale
from capelet.training.device import choose, half_precision, seeded_fork
from capelet.training.loop import Descent, Listeners, StoppingRule, run, warm_cosine

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_TEXTS = 50


class WordNetwork(nn.Module):
    """A residual perceptron from a vector (and the words named so far) to a score per word.

    A second head says how many words are still to be named.
    """

    def __init__(
        self, inputs: int, width: int, depth: int, words: int, dropout: float, sees: bool
    ) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.GELU(),
                nn.Dropout(dropout),
                nn.Linear(2 * width, width),
                nn.Dropout(dropout),
            )
            for _ in range(depth)
        )
        self.leave = nn.Sequential(nn.LayerNorm(width), nn.Dropout(dropout))
        self.words = nn.Linear(width, words)
        self.count = nn.Linear(width, 1)
        # A sum of word vectors, since a set has no order; the row of the padding stays zero.
        self.prefix = (
            nn.EmbeddingBag(words + 1, width, mode="sum", padding_idx=words) if sees else None
        )
        if self.prefix is not None:
            nn.init.normal_(self.prefix.weight, std=0.02)
            nn.init.zeros_(self.prefix.weight[words])

    def forward(self, vectors: Tensor, prefix: Tensor | None = None) -> tuple[Tensor, Tensor]:
        state = self.enter(vectors)
        if self.prefix is not None and prefix is not None and prefix.shape[1]:
            state = state + self.prefix(prefix)
        for block in self.blocks:
            state = state + block(state)
        state = self.leave(state)
        # A count is positive, hence softplus.
        return self.words(state), functional.softplus(self.count(state)).squeeze(1)


@dataclass(frozen=True, kw_only=True)
class WordAttack(ABC):
    """A network that names words, and how it is trained; each attack has its own loss and ranking.

    `members` networks of different seeds are averaged. `sees_prefix` says whether the network is
    told which words have been named so far.
    """

    width: int = 768
    depth: int = 2
    dropout: float = 0.3
    epochs: int = 20
    batch: int = 512
    learning_rate: float = 1e-3
    decay: float = 1e-2
    members: int = 1
    seed: int = 0
    device: str | None = None
    name: str
    sees_prefix: ClassVar[bool] = False

    def fit(
        self, vectors: Floats, sets: WordSets, vocabulary: Vocabulary, progress: Progress = silent
    ) -> Inverter:
        """Learn on auxiliary vectors, `(texts, d)` or `(draws, texts, d)`.

        Of several noise draws of each text each epoch sees one.
        """
        draws = draws_of(vectors, len(sets), _LEAST_TEXTS)
        if not np.isfinite(draws).all():
            raise DataError("some auxiliary vectors are not finite; leave those texts out")
        # Networks on nine tenths of the auxiliary texts; the cut is tuned on the last tenth.
        tune, fit = held_back(self.seed, len(sets))
        device = choose(self.device)
        # Learnt on the rows to fit on: the tuning rows stand for victims.
        mean, scale = standard_scale(draws[:, fit].reshape(-1, draws.shape[2]))
        truth = torch.from_numpy(sets.take(fit).to_table(len(vocabulary)))
        networks = [
            _train(self, draws[:, fit], truth, vocabulary, (mean, scale), device, member, progress)
            for member in range(self.members)
        ]
        rough = Inverter(self, networks, mean, scale, 1.0)
        # One draw, since a victim is released once.
        weight = tuned_cut(*rough.rank(draws[0][tune]), sets.take(tune), len(vocabulary))
        return replace(rough, weight=weight)

    @abstractmethod
    def loss(self, network: WordNetwork, vectors: Tensor, truth: Tensor, words: int) -> Tensor:
        """The mean loss of a batch; `truth` are word numbers, `words` where a row has fewer."""

    @abstractmethod
    def rank(self, networks: list[WordNetwork], vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Words in the order of naming, the probability of each, and how many there are."""


@dataclass(frozen=True, kw_only=True)
class MultiLabel(WordAttack):
    """Every word is a yes-or-no question to one network (eq. 8), trained by cross-entropy."""

    name: str = "multi-label"

    def loss(self, network: WordNetwork, vectors: Tensor, truth: Tensor, words: int) -> Tensor:
        scores, count = network(vectors)
        target = _hot(truth, words)
        # Eq. 8. Summed over the words: a mean over thousands would hide the few that are there.
        each = functional.binary_cross_entropy_with_logits(scores, target, reduction="sum")
        return each / len(vectors) + _count_loss(count, (truth < words).sum(dim=1))

    def rank(self, networks: list[WordNetwork], vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = [network(vectors) for network in networks]
        chances = torch.stack([torch.sigmoid(scores) for scores, _ in outputs]).mean(dim=0)
        sizes = torch.stack([count for _, count in outputs]).mean(dim=0)
        top = chances.topk(min(MOST, chances.shape[1]), dim=1)
        return top.indices, top.values, sizes


@dataclass(frozen=True, kw_only=True)
class MultiSet(WordAttack):
    """One word after another until the set is named (eq. 9); the target is uniform over the rest.

    In training the words named so far are partly true ones in random order and partly the
    network's own guesses, right or wrong, as they will be at the attack; some rows start with none.
    A word already named cannot be named again. The same scores also answer, word by word, whether
    it is among those left (as in eq. 8 for the rest): a softmax does not mind their common level,
    and so that level comes to say how likely the next word is right, and when to stop.
    """

    own: float = 0.5
    fresh: float = 0.3
    uniform: float = 0.5
    name: str = "multi-set"
    sees_prefix: ClassVar[bool] = True

    def loss(self, network: WordNetwork, vectors: Tensor, truth: Tensor, words: int) -> Tensor:
        prefix = self._prefix(network, vectors, truth, words)
        scores, remaining = network(vectors, prefix)
        scores = _without(scores, prefix, words)
        # What was named already is no target any more; a wrong guess takes nothing from it.
        hit = (truth[:, :, None] == prefix[:, None, :]).any(dim=2)
        still = truth.masked_fill(hit, words)
        count = (still < words).sum(dim=1)
        # Eq. 9: at each step the target is uniform over the words left before it. In float32: three
        # digits, as bfloat16 has, are too few for logarithms over thousands of words.
        logs = functional.log_softmax(scores.float(), dim=1).gather(1, still.clamp(max=words - 1))
        uniform = -(logs * (still < words)).sum() / len(vectors)
        each = functional.binary_cross_entropy_with_logits(
            scores, _hot(still, words), reduction="sum"
        )
        return each / len(vectors) + self.uniform * uniform + _count_loss(remaining, count)

    def _prefix(self, network: WordNetwork, vectors: Tensor, truth: Tensor, words: int) -> Tensor:
        """Words named before a random step: true ones for some rows, own guesses for others."""
        rows, longest = truth.shape
        device = truth.device
        sizes = (truth < words).sum(dim=1)
        # Padding gets the largest keys, so that true words come first, in random order.
        order = torch.rand(rows, longest, device=device).masked_fill(truth >= words, 2.0)
        prefix = truth.gather(1, order.argsort(dim=1))
        # At the attack the network sees its own errors; one that met only true words in training
        # would not know what to do after the first wrong one.
        own = torch.rand(rows, device=device) < self.own
        with torch.no_grad():
            scores = network(vectors[own])[0].float()
            # Gumbel noise makes the choice a draw without replacement from the network's softmax.
            noise = -torch.log(-torch.log(torch.rand_like(scores).clamp(1e-9, 1 - 1e-7)))
            # Sharper than its softmax, as the attack is, which takes the best word.
            prefix[own] = (scores * 1.5 + noise).topk(longest, dim=1).indices
        step = (torch.rand(rows, device=device) * (sizes + 1)).long()
        # Every attack begins with none, so that this case is learnt more often than others.
        step[torch.rand(rows, device=device) < self.fresh] = 0
        inside = torch.arange(longest, device=device) < step[:, None]
        return torch.where(inside, prefix, torch.full_like(prefix, words))

    def rank(self, networks: list[WordNetwork], vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        words = networks[0].words.out_features
        prefix = torch.full((len(vectors), 0), words, device=vectors.device, dtype=torch.long)
        chances: list[Tensor] = []
        sizes = torch.zeros(len(vectors), device=vectors.device)
        # Each word costs a pass through all networks, so it stops at half as many as `MultiLabel`
        # may name.
        for step in range(min(MOST // 2, words)):
            outputs = [network(vectors, prefix) for network in networks]
            scores = torch.stack([_without(scores, prefix, words) for scores, _ in outputs])
            best = scores.sigmoid().mean(dim=0).max(dim=1)
            if step == 0:
                sizes = torch.stack([count for _, count in outputs]).mean(dim=0)
            chances.append(best.values)
            prefix = torch.cat([prefix, best.indices[:, None]], dim=1)
        return prefix, torch.stack(chances, dim=1), sizes


@dataclass(frozen=True, eq=False)
class Inverter:
    """A fitted black-box attacker: vectors in, word sets out."""

    attack: WordAttack
    networks: list[WordNetwork]
    mean: Floats
    scale: Floats
    weight: float

    def rank(self, vectors: Floats) -> tuple[Ids, Floats, Floats]:
        """Words by the order of naming, the probability that each is right, and set sizes."""
        device = next(self.networks[0].parameters()).device
        blocks: list[tuple[Any, ...]] = []
        with torch.no_grad():
            for start in range(0, len(vectors), 1024):
                block = standard_tensor(
                    vectors[start : start + 1024], self.mean, self.scale, device
                )
                blocks.append(
                    tuple(item.cpu().numpy() for item in self.attack.rank(self.networks, block))
                )
        ids, chances, sizes = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        return ids, chances.astype(np.float64), sizes.astype(np.float64)

    def predict(self, vectors: Floats) -> WordSets:
        """The set of words that each vector is thought to come from."""
        ids, chances, sizes = self.rank(vectors)
        return cut_sets(ids, best_cut(chances, sizes, self.weight))


def held_back(seed: int, texts: int) -> tuple[Ids, Ids]:
    """The auxiliary texts that an attacker of this seed tunes on, and those it learns from."""
    # One split for all attackers of a seed: what one tunes on, another has not learnt either.
    order = np.random.default_rng([seed, 0x1A]).permutation(texts)
    tenth = min(max(texts // 10, 10), 5000)
    return order[:tenth], order[tenth:]


def _train(
    attack: WordAttack,
    draws: Floats,
    truth: Tensor,
    vocabulary: Vocabulary,
    standard: tuple[Floats, Floats],
    device: torch.device,
    member: int,
    progress: Progress,
) -> WordNetwork:
    words = len(vocabulary)
    with seeded_fork(attack.seed * 1000 + member, device):
        network = WordNetwork(
            draws.shape[2], attack.width, attack.depth, words, attack.dropout, attack.sees_prefix
        )
        _start_from_frequencies(network, vocabulary)
        network = network.to(device)
        inputs = torch.stack([standard_tensor(draw, *standard, device) for draw in draws])
        truth = truth.to(device)
        # Few texts in large batches would be too few steps: a weak attacker looks like privacy.
        batch = min(attack.batch, max(32, len(truth) // 20))
        steps_per_epoch = -(-len(truth) // batch)
        steps = attack.epochs * steps_per_epoch
        optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=attack.learning_rate,
            weight_decay=attack.decay,
            betas=(0.9, 0.98),
        )

        def loss_of(rows: Tensor) -> Tensor:
            draw = torch.randint(len(inputs), (len(rows),), device=device)
            with half_precision(device):
                return attack.loss(network, inputs[draw, rows], truth[rows], words)

        def show(what: str, count: int, total: int) -> None:
            progress(attack.name, member * steps + count, attack.members * steps)

        descent = Descent(
            network,
            optimiser,
            lambda epoch: torch.split(torch.randperm(len(truth), device=device), batch),
            loss_of,
            pace=warm_cosine(steps, max(steps // 10, 1)),
            max_grad_norm=1.0,
            steps_per_epoch=steps_per_epoch,
        )
        run(descent, StoppingRule(attack.epochs), listeners=Listeners(show))
    return network.eval()


def _start_from_frequencies(network: WordNetwork, vocabulary: Vocabulary) -> None:
    """The first guess is each word's frequency; the network learns what a vector adds to it."""
    shares = torch.from_numpy(vocabulary.shares).float()
    with torch.no_grad():
        # Small weights, so that the biases speak first.
        network.words.weight.mul_(0.1)
        network.words.bias.copy_(torch.logit(shares))


def standard_tensor(vectors: Floats, mean: Floats, scale: Floats, device: torch.device) -> Tensor:
    standard = np.clip((vectors - mean) * scale, -30, 30).astype(np.float32)
    return torch.from_numpy(standard).to(device)


def _hot(truth: Tensor, words: int) -> Tensor:
    """`(rows, words)` with 1 where a word belongs to the text."""
    # The last column takes the padding and is cut off.
    hot = torch.zeros(len(truth), words + 1, device=truth.device)
    return hot.scatter_(1, truth, 1.0)[:, :words]


def _without(scores: Tensor, prefix: Tensor, words: int) -> Tensor:
    """Scores in which the words already named cannot be chosen again."""
    if not prefix.shape[1]:
        return scores
    mask = torch.zeros(len(scores), words + 1, device=scores.device, dtype=torch.bool)
    # Not −inf: its product with a target of 0 in the cross-entropy would be NaN.
    return scores.masked_fill(mask.scatter_(1, prefix, True)[:, :words], -1e4)


def _count_loss(guess: Tensor, count: Tensor) -> Tensor:
    """Poisson likelihood of how many words are left."""
    guess = guess.float().clamp(min=1e-3)
    return (guess - count * guess.log()).mean()
