"""What a training asks for: each term adds one loss to the sum.

A term sees a batch (vectors, features, codes of the task and of the secrets, −1 where missing) and
returns a loss. The adversaries in here belong to the defence: what they reach says little about a
fresh attacker, which is why `protect` shows both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax, normalize, one_hot
from torch.nn.utils import skip_init

from capelet.data.labels import Attribute
from capelet.defences.settings import HeadShape
from capelet.training.device import seeded_fork
from capelet.training.networks import dense, reversed_gradient

if TYPE_CHECKING:
    from capelet.defences.network import Network

PLAIN_HEAD = HeadShape()


@dataclass(frozen=True, eq=False)
class Batch:
    """What a term sees. `share` is how much of the training is over, from 0 to 1.

    `total` asks for sums over rows in place of means: then what a row adds depends on it alone.
    """

    x: Tensor
    features: Tensor
    codes: Mapping[str, Tensor]
    share: float
    random: torch.Generator
    rows: Tensor | None = None  # which rows of the part these are, where a front makes x of them
    total: bool = False


class Term(nn.Module):
    """One loss of a training; `joint` are the secrets' scores of its adversary, if it has one."""

    def joint(self, features: Tensor) -> dict[str, Tensor]:
        return {}

    def task_head(self) -> nn.Module | None:
        """Linear layers from features to a score for each class of the task; None without."""
        return None

    def blind(self) -> float:
        """The loss of guessing without looking; infinite where the loss is bounded anyway."""
        return math.inf

    def forward(self, batch: Batch, network: Network) -> Tensor:
        raise NotImplementedError


def class_weights(target: Attribute, codes: Tensor) -> Tensor:
    """A weight for each class with which all classes count alike."""
    counts = torch.bincount(codes[codes >= 0], minlength=len(target.classes)).float().clamp(min=1)
    return counts.sum() / (len(counts) * counts)


def known_loss(
    scores: Tensor, codes: Tensor, weight: Tensor | None = None, total: bool = False
) -> Tensor:
    """Mean (or total) cross-entropy over the rows whose class is known; 0 where none is.

    torch would give NaN for a batch without a known row, and to forgive NaN would hide a training
    that diverges.
    """
    present = codes >= 0
    if not present.any():
        return scores.sum() * 0
    reduction = "sum" if total else "mean"
    return cross_entropy(scores[present], codes[present], weight, reduction=reduction)


def make_head(width: int, target: Attribute, shape: HeadShape) -> nn.Sequential:
    """From features to a score for each class of the target."""
    return dense([width, shape.units, len(target.classes)], shape.dropout)


def dropout_of(batch: Batch, shape: HeadShape) -> AbstractContextManager[None]:
    """Inside, dropout draws from the training's own random numbers: so it can be repeated."""
    if not shape.dropout:
        return nullcontext()
    device = batch.features.device
    number = torch.randint(2**62, (1,), generator=batch.random, device=device)
    return seeded_fork(int(number), device)


class Task(Term):
    """The task's own loss: what the features must stay good for."""

    def __init__(self, width: int, task: Attribute, shape: HeadShape = PLAIN_HEAD) -> None:
        super().__init__()
        self.name, self.classes, self.shape = task.name, len(task.classes), shape
        self.head = make_head(width, task, shape)

    def task_head(self) -> nn.Module:
        return self.head

    def blind(self) -> float:
        return math.log(self.classes)

    def forward(self, batch: Batch, network: Network) -> Tensor:
        with dropout_of(batch, self.shape):
            scores = self.head(batch.features)
        return known_loss(scores, batch.codes[self.name], total=batch.total)


class Neighbourhood(Term):
    """How far each text's neighbours have changed: what a vector store's user would notice.

    Every text deals its attention to the others of the batch by cosine (a softmax at temperature
    0.05, so nearly all of it to the nearest ones); the loss is what the divergence between the
    attention before and after says, in nats, times `weight`.
    """

    MOST = 1024
    TEMPERATURE = 0.05

    def __init__(self, weight: float = 10.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, batch: Batch, network: Network) -> Tensor:
        before, after = self._attention(batch.x), self._attention(batch.features)
        return self.weight * (before.exp() * (before - after)).sum(dim=1).mean()

    def _attention(self, rows: Tensor) -> Tensor:
        unit = normalize(rows[: self.MOST], dim=1)
        # Nobody is its own neighbour: e^−10⁴ is 0, and no infinity enters the gradient.
        itself = torch.eye(len(unit), device=unit.device) * 1e4
        return log_softmax(unit @ unit.T / self.TEMPERATURE - itself, dim=1)


class Fight(Term):
    """A term against secrets: their λ, which grows from 0 over the first `warm` of the training.

    `lambdas` are those of single secrets, by name; the others have `lam`.
    """

    def __init__(
        self,
        secrets: Sequence[Attribute],
        lam: float,
        lambdas: Mapping[str, float] | None = None,
        warm: float = 0.0,
    ) -> None:
        super().__init__()
        self.secrets, self.lam, self.warm = list(secrets), lam, warm
        self.lambdas = tuple(sorted((lambdas or {}).items()))

    def growth(self, batch: Batch) -> float:
        """How much of its λ a secret has by now."""
        return min(1.0, batch.share / self.warm) if self.warm else 1.0

    def strengths(self, batch: Batch) -> list[float]:
        """The λ of each secret by now."""
        by_name, growth = dict(self.lambdas), self.growth(batch)
        return [by_name.get(item.name, self.lam) * growth for item in self.secrets]


class Reversal(Fight):
    """Gradient reversal: one head for each secret minimises its loss, the features maximise it.

    λ acts once, in the reversal; the heads learn at full strength. λ grows from 0, since −λL is
    unbounded and a strong λ on a blind head only stirs.
    """

    def __init__(
        self,
        width: int,
        secrets: Sequence[Attribute],
        lam: float,
        warm: float = 0.0,
        lambdas: Mapping[str, float] | None = None,
        shape: HeadShape = PLAIN_HEAD,
    ) -> None:
        super().__init__(secrets, lam, lambdas, warm)
        self.shape = shape
        self.heads = nn.ModuleList([make_head(width, item, shape) for item in secrets])

    def joint(self, features: Tensor) -> dict[str, Tensor]:
        return {
            item.name: head(features) for item, head in zip(self.secrets, self.heads, strict=True)
        }

    def blind(self) -> float:
        return sum(math.log(len(item.classes)) for item in self.secrets)

    def forward(self, batch: Batch, network: Network) -> Tensor:
        with dropout_of(batch, self.shape):
            scores_by_name = self._scores(batch)
        losses = [
            known_loss(scores, batch.codes[item.name], network.weights[item.name], batch.total)
            for item, scores in zip(self.secrets, scores_by_name, strict=True)
        ]
        return torch.stack(losses).sum()

    def _scores(self, batch: Batch) -> list[Tensor]:
        if not self.lambdas:
            features = reversed_gradient(batch.features, self.lam * self.growth(batch))
            return list(self.joint(features).values())
        return [
            head(reversed_gradient(batch.features, strength))
            for head, strength in zip(self.heads, self.strengths(batch), strict=True)
        ]


class BoundedReversal(Reversal):
    """Reversal with a bottom: the features minimise −λ·log(1 − P(z)), the heads their own loss.

    The loss of Coavoux et al. (2018), which CAPE prints as equation 3, −λ·log P(¬z). Where the head
    is sure of the secret it pulls as hard as reversal pushes; where the head is wrong it is 0 and
    asks for nothing, while −L grows without end.
    """

    def forward(self, batch: Batch, network: Network) -> Tensor:
        losses = []
        pairs = zip(self.secrets, self.heads, self.strengths(batch), strict=True)
        with dropout_of(batch, self.shape):
            for item, head, strength in pairs:
                codes, weight = batch.codes[item.name], network.weights[item.name]
                # The head learns and the features stay; then the features learn and the head stays.
                own = known_loss(head(batch.features.detach()), codes, weight)
                weights = {name: value.detach() for name, value in head.named_parameters()}
                scores = functional_call(head, weights, (batch.features,))
                losses += [own, strength * _chance_loss(scores, codes, weight)]
        return torch.stack(losses).sum()


def _chance_loss(scores: Tensor, codes: Tensor, weight: Tensor) -> Tensor:
    """Mean of −log(1 − P(z)) over the rows whose class z is known, classes weighed alike."""
    present = codes >= 0
    if not present.any():
        return scores.sum() * 0
    truth = one_hot(codes[present], scores.shape[1]).bool()
    logs = log_softmax(scores[present], dim=1)
    # log(1 − P(z)) as the log of the sum of the others: exact where P(z) is nearly 1.
    others = logs.masked_fill(truth, -math.inf).logsumexp(dim=1)
    weights = weight[codes[present]]
    return -(weights * others).sum() / weights.sum()


class CrossGradient(Term):
    """Cross-gradient training (Shankar et al. 2018): each side learns on the other's perturbation.

    X_a = X + s·∇ₓL_a and X_c = X + s·∇ₓL_c, both held constant; the task learns on X and X_a, the
    adversaries on X and X_c. Losses are summed for the gradients, so that s does not shrink with
    the batch; the adversaries' step leaves the shared layers alone.
    """

    def __init__(
        self,
        width: int,
        task: Attribute,
        secrets: Sequence[Attribute],
        step: float = 5.0,
        mix: float = 0.5,
        shape: HeadShape = PLAIN_HEAD,
    ) -> None:
        super().__init__()
        self.task, self.secrets, self.step, self.mix = task, list(secrets), step, mix
        self.shape = shape
        self.head = make_head(width, task, shape)
        self.heads = nn.ModuleList([make_head(width, item, shape) for item in secrets])

    def task_head(self) -> nn.Module:
        return self.head

    def joint(self, features: Tensor) -> dict[str, Tensor]:
        return {
            item.name: head(features) for item, head in zip(self.secrets, self.heads, strict=True)
        }

    def blind(self) -> float:
        return sum(math.log(len(item.classes)) for item in (self.task, *self.secrets))

    def forward(self, batch: Batch, network: Network) -> Tensor:
        with dropout_of(batch, self.shape):
            return self._loss(batch, network)

    def _loss(self, batch: Batch, network: Network) -> Tensor:
        x = batch.x.detach().requires_grad_()
        features = network.body(x)
        task = self._task(features, batch, total=True)
        secret = self._secrets(features, batch, total=True)
        towards_task = torch.autograd.grad(task, x, retain_graph=True)[0]
        towards_secret = torch.autograd.grad(secret, x)[0]
        # Towards the secret a writer changes and the topic does not: the task must not notice.
        other_writer = network.body((x + self.step * towards_secret).detach())
        with torch.no_grad():  # the adversaries learn, and the shared layers do not help them
            plain = network.body(batch.x)
            other_topic = network.body((x + self.step * towards_task).detach())
        task_loss = (1 - self.mix) * self._task(batch.features, batch) + self.mix * self._task(
            other_writer, batch
        )
        adversary_loss = (1 - self.mix) * self._secrets(plain, batch) + self.mix * self._secrets(
            other_topic, batch
        )
        return task_loss + adversary_loss

    def _task(self, features: Tensor, batch: Batch, total: bool = False) -> Tensor:
        codes = batch.codes[self.task.name]
        return known_loss(self.head(features), codes) * ((codes >= 0).sum() if total else 1)

    def _secrets(self, features: Tensor, batch: Batch, total: bool = False) -> Tensor:
        losses = []
        for name, scores in self.joint(features).items():
            codes = batch.codes[name]
            losses.append(known_loss(scores, codes) * ((codes >= 0).sum() if total else 1))
        return torch.stack(losses).sum()


class Independence(Fight):
    """What a fresh kernel attacker would explain of the secrets: a new one in every step.

    The adversary is kernel ridge regression (linear, or Gaussian at one of several widths), solved
    in closed form on one half of the batch and scored on the other: the squared correlation of its
    guess with the secret. So there is no adversary to outrun, to fool or to leave behind, and its
    gradient says how to make the *best* such attacker worse. Gradient reversal has one adversary,
    always late.

    The secret is the label, classes weighed alike; or, with a reader, the chances that it gives.
    """

    WIDTHS = (0.0, 0.5, 1.0, 2.0)  # 0: linear

    def __init__(
        self,
        secrets: Sequence[Attribute],
        lam: float,
        reader: nn.Module | None = None,
        ridge: float = 1e-3,
        warm: float = 0.2,
        lambdas: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(secrets, lam, lambdas, warm)
        self.reader, self.ridge = reader, ridge

    def forward(self, batch: Batch, network: Network) -> Tensor:
        half = len(batch.x) // 2
        if half < 32:  # too few rows to score an adversary on
            return batch.features.sum() * 0
        if self.reader is None:
            pairs = self._labels(batch, network)
        else:
            pairs = self._chances(batch, self.reader)
        columns = [
            self._columns(target[: 2 * half], weight[: 2 * half]) for target, weight in pairs
        ]
        targets = torch.cat([target for target, _ in columns], dim=2)
        weights = torch.cat([weight for _, weight in columns], dim=2)
        kernel = self._kernel(batch, 2 * half)
        explained = self._squared_correlation(kernel, targets, weights)
        if not self.lambdas:
            return self.lam * self.growth(batch) * explained.sum()
        # A secret of several classes has a column for each, all with its λ.
        sizes = torch.tensor([target.shape[2] for target, _ in columns])
        strengths = torch.tensor(self.strengths(batch)).repeat_interleave(sizes)
        return (strengths.to(kernel) * explained).sum()

    def _kernel(self, batch: Batch, count: int) -> Tensor:
        """How alike the rows are, of centred features of length one, at a width drawn anew."""
        features = batch.features[:count]
        unit = normalize(features - features.mean(dim=0), dim=1)
        pick = torch.randint(len(self.WIDTHS), (1,), generator=batch.random, device=unit.device)
        width = self.WIDTHS[int(pick)]
        cosines = unit @ unit.T
        return torch.exp(2 * width * (cosines - 1)) if width else cosines

    def _labels(self, batch: Batch, network: Network) -> list[tuple[Tensor, Tensor]]:
        """For each secret a column for every class, and the weight of each row; 0 where missing."""
        pairs = []
        for item in self.secrets:
            codes = batch.codes[item.name]
            places = codes.clamp(min=0)
            weight = network.weights[item.name][places] * (codes >= 0)
            pairs.append((one_hot(places, len(item.classes)).float(), weight))
        return pairs

    def _chances(self, batch: Batch, reader: nn.Module) -> list[tuple[Tensor, Tensor]]:
        sizes = [len(item.classes) for item in self.secrets]
        alike = torch.ones(len(batch.x), device=batch.x.device)
        return [(chances, alike) for chances in torch.split(reader(batch.x), sizes, dim=1)]

    @staticmethod
    def _columns(target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """By halves; of two classes one column says all."""
        target = target[:, 1 if target.shape[1] == 2 else 0 :]
        half = len(target) // 2
        weights = weight[:, None].expand_as(target).reshape(2, half, -1)
        return target.reshape(2, half, -1), weights / weights.sum(dim=1, keepdim=True).clamp(1e-9)

    def _squared_correlation(self, kernel: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """The squared correlation of guess and secret on the half that was not learnt from.

        One system for all secrets: the classes' weights stand on the right-hand side alone.
        """
        half = len(kernel) // 2
        across = _centre(kernel[:half, half:])
        own = torch.stack([_centre(kernel[:half, :half]), _centre(kernel[half:, half:])])
        truth = target - (weight * target).sum(dim=1, keepdim=True)
        ridge = self.ridge * half * torch.eye(half, device=kernel.device)
        root = torch.linalg.cholesky_ex(own + ridge)[0]
        # α = (K + ridge)⁻¹ W y on each half; its guess on the other half is K_across α.
        dual = torch.cholesky_solve(half * weight * truth, root)
        guess = torch.stack([across @ dual[1], across.T @ dual[0]])
        guess = guess - (weight * guess).sum(dim=1, keepdim=True)
        # A guess that is wrong on purpose (a negative covariance) explains nothing.
        covariance = (weight * truth * guess).sum(dim=1).clamp(min=0) ** 2
        variance = (weight * truth**2).sum(dim=1) * (weight * guess**2).sum(dim=1)
        return (covariance / (variance + 1e-8)).mean(dim=0)


def _centre(kernel: Tensor) -> Tensor:
    """The kernel of features from which the mean of each side was taken: HKH, H = I − 11ᵀ/n."""
    return (
        kernel - kernel.mean(dim=0, keepdim=True) - kernel.mean(dim=1, keepdim=True) + kernel.mean()
    )


class SymbolTask(Term):
    """The task's loss from one noisy symbol: its exact mean over the noise, not a sample.

    Symbol s says "class s" to begin with, the classes in order of their frequency.
    """

    def __init__(self, symbols: int, task: Attribute) -> None:
        super().__init__()
        self.name = task.name
        counts = torch.tensor(list(task.counts().values()))
        order = counts.argsort(descending=True)[:symbols]
        start = torch.zeros(symbols, len(task.classes))
        start[torch.arange(len(order)), order] = 3.0
        self.table = nn.Parameter(start)

    def task_head(self) -> nn.Module:
        """A released symbol is one-hot: its row of the table is its scores."""
        return _linear(self.table.detach().T)

    def forward(self, batch: Batch, network: Network) -> Tensor:
        codes = batch.codes[self.name]
        present = codes >= 0
        losses = -log_softmax(self.table, dim=1)[:, codes[present]].T
        # Σₛ P(s|x) · loss(s): the features are the chances of the symbols after the noise.
        return (batch.features[present] * losses).sum() / present.sum().clamp(min=1)


class SymbolLikelihood(Term):
    """−log of the chance that the released symbol is the class: symbol s is class s, for good.

    Nothing is learnt beside the map, and nothing depends on how frequent the classes are; for a
    linear map it is nearly convex, so that a few noisy steps go far.
    """

    def __init__(self, task: Attribute, epsilon: float = 1.0) -> None:
        super().__init__()
        self.name, self.classes, self.epsilon = task.name, len(task.classes), epsilon

    def task_head(self) -> nn.Module:
        """softmax(ε·one-hot) is the posterior of equally likely classes: nothing is learnt."""
        return _linear(self.epsilon * torch.eye(self.classes))

    def forward(self, batch: Batch, network: Network) -> Tensor:
        codes = batch.codes[self.name]
        present = codes >= 0
        chances = batch.features[present].gather(1, codes[present][:, None])
        loss = -chances.clamp(min=1e-12).log().sum()
        return loss if batch.total else loss / present.sum().clamp(min=1)


def _linear(weight: Tensor) -> nn.Linear:
    """A layer of this weight, without a bias."""
    # Without first weights: drawing them would move the caller's random numbers.
    sizes = weight.shape[1], weight.shape[0]
    layer: nn.Linear = skip_init(nn.Linear, *sizes)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.zero_()
    return layer


class SymbolIndependence(Fight):
    """What the best possible attacker gains from the symbol: exact, for there are few symbols.

    Over chance, in balanced accuracy, as a share of what is to be gained: Σₛ maxᵤ P(s|u) over the
    classes u of the secret. λ times the sum over the secrets, or the sum with a λ for each.
    """

    def forward(self, batch: Batch, network: Network) -> Tensor:
        gains = []
        for item in self.secrets:
            codes = batch.codes[item.name]
            present = codes >= 0
            member = one_hot(codes[present], len(item.classes)).float()
            chances = member.T @ batch.features[present]  # P(s|u), after the division
            chances = chances / member.sum(dim=0).clamp(min=1)[:, None]
            best = chances.max(dim=0).values.sum()
            gains.append((best - 1) / max(len(item.classes) - 1, 1))
        if not self.lambdas:
            return self.lam * torch.stack(gains).sum()
        strengths = torch.tensor(self.strengths(batch)).to(batch.features)
        return (strengths * torch.stack(gains)).sum()
