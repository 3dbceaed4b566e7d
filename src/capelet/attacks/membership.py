"""Membership: was this window, pair or writer among what the model was trained on?

Threat model: the attacker holds the model (a table of word vectors, or vectors of texts) and some
texts whose membership it knows (auxiliary). Things that stood in one context in training are more
alike afterwards; so the similarity of centre and context words, or of neighbouring sentences, is
compared with a threshold (Song, Raghunathan 2020, algorithms 4 and 5, eq. 10).

The threshold is chosen on auxiliary texts, never on those that are scored: on pure noise the best
threshold of 100 + 100 scored rows alone would give an advantage of 0.08. Members and non-members
are matched in word frequency: each centre word has as many windows of both kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, Score, share_interval, weighted_means
from capelet.findings.metrics import Guesses, replicates, tpr_at

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.floating[Any]]
Flags = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int64]

DECILES = 10
# Others that must be scored before one false alarm in a thousand is spoken of: ten alarms. With one
# alarm (1,000 others) the interval covers 88 %.
RARE = 10_000
METRICS = ("advantage", "auc", "tpr_at_1_fpr", "tpr_at_01_fpr")
CHANCE = {"advantage": 0.0, "auc": 0.5, "tpr_at_1_fpr": 0.01, "tpr_at_01_fpr": 0.001}


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of words: a centre, its context (−1 where there is none), and the text's number."""

    centre: Ids
    context: Ids
    text: Ids
    member: Flags

    def __len__(self) -> int:
        return len(self.centre)

    def take(self, rows: npt.NDArray[Any]) -> Windows:
        return Windows(self.centre[rows], self.context[rows], self.text[rows], self.member[rows])


def flags_of(member: Sequence[bool] | Flags, texts: int) -> Flags:
    """The member labels, one for each text and both among them."""
    flags = np.asarray(member, dtype=bool)
    if len(flags) != texts:
        raise DataError(f"{len(flags)} member labels do not match {texts} texts")
    _both(flags, "texts")
    return flags


def windows_of(
    texts: Sequence[Sequence[str]],
    member: Sequence[bool] | Flags,
    words: Sequence[str],
    size: int = 5,
) -> Windows:
    """Every window of `size` words to either side whose centre the model knows.

    `texts` are cut into words. Words that the model does not know are left out before windows are
    made, as its training leaves them out; a window without any context is dropped.
    """
    flags = flags_of(member, len(texts))
    place = {word: number for number, word in enumerate(words)}
    centres, contexts, owners = [], [], []
    for number, text in enumerate(texts):
        ids = np.array([place[word] for word in text if word in place], dtype=np.int64)
        if len(ids) < 2:
            continue
        wide = np.concatenate([np.full(size, -1), ids, np.full(size, -1)])
        around = np.lib.stride_tricks.sliding_window_view(wide, 2 * size + 1)
        centres.append(ids)
        # Without the centre itself, whose cosine with itself is 1.
        contexts.append(np.delete(around, size, axis=1))
        owners.append(np.full(len(ids), number))
    if not centres:
        raise DataError("the model knows no two words of any text; is it of another language?")
    owner = np.concatenate(owners)
    return Windows(np.concatenate(centres), np.concatenate(contexts), owner, flags[owner])


def match_frequencies(windows: Windows, per_word: int = 20, seed: int = 0) -> Windows:
    """As many member as non-member windows of every centre word, at most `per_word` of each."""
    random = np.random.default_rng([seed, 0x2A])
    order = random.permutation(len(windows))
    # Windows of one word and one side stand together, in random order: a place below the quota is a
    # random choice among them.
    order = order[np.lexsort((windows.member[order], windows.centre[order]))]
    key = windows.centre[order] * 2 + windows.member[order]
    starts = np.r_[0, np.flatnonzero(np.diff(key)) + 1]
    place = np.arange(len(key)) - np.repeat(starts, np.diff(np.r_[starts, len(key)]))
    size = int(windows.centre.max()) + 1
    counts = np.bincount(key, minlength=2 * size).reshape(size, 2)
    # The scarcer side decides. Otherwise a word that is more frequent on one side would tell
    # membership by its frequency.
    quota = np.minimum(counts.min(axis=1), per_word)
    rows = order[place < quota[windows.centre[order]]]
    if not len(rows):
        raise DataError("no word stands in a member and in a non-member text; give more text")
    return windows.take(np.sort(rows))


def window_scores(vectors: Floats, windows: Windows, centre: bool = False) -> Floats:
    """The mean cosine of the centre and each word of its context (algorithm 4).

    `centre` first takes the mean vector off, which most tables share in every word and which says
    nothing of any of them.
    """
    unit = _unit(vectors - vectors.mean(axis=0) if centre else vectors)
    scores = np.empty(len(windows))
    # In blocks: every window holds ten context vectors.
    for start in range(0, len(windows), 4096):
        rows = slice(start, start + 4096)
        present = windows.context[rows] >= 0
        near = unit[windows.context[rows].clip(0)]
        cosines = np.einsum("nd,nkd->nk", unit[windows.centre[rows]], near)
        scores[rows] = (cosines * present).sum(axis=1) / np.maximum(present.sum(axis=1), 1)
    return scores


def pair_scores(first: Floats, second: Floats, similarity: str = "dot") -> Floats:
    """How alike the two vectors of each pair are: their product, as in the paper, or cosine."""
    if first.shape != second.shape:
        raise DataError(f"pairs need two vectors each: {first.shape} and {second.shape}")
    if similarity not in ("dot", "cosine"):
        raise DataError(f"there is no similarity {similarity!r}; there is dot and cosine")
    if similarity == "cosine":
        first, second = _unit(first), _unit(second)
    return np.asarray(np.einsum("nd,nd->n", first, second, dtype=np.float64))


def aggregate(scores: Floats, groups: npt.NDArray[Any]) -> tuple[Floats, npt.NDArray[Any]]:
    """The mean score of each group (a writer, a book), and the groups in that order."""
    names, codes = np.unique(groups, return_inverse=True)
    return np.bincount(codes, scores) / np.bincount(codes), names


@dataclass(frozen=True)
class LearnedSimilarity:
    """σ(a·cos(W·x, W·y) + b) with W, a and b learnt on pairs of known membership (eq. 10)."""

    width: int = 64
    steps: int = 400
    learning_rate: float = 5e-3
    decay: float = 1e-3
    seed: int = 0

    def fit(self, first: Floats, second: Floats, member: Flags) -> Similarity:
        import torch
        from torch import nn
        from torch.nn import functional

        from capelet.training.device import seeded_fork
        from capelet.training.loop import Descent, StoppingRule, run

        _both(member, "auxiliary pairs")
        mean = np.concatenate([first, second]).mean(axis=0)
        # W has thousands of weights and learns few pairs by heart; what reads a held-back fifth of
        # the auxiliary pairs best is kept.
        tuning = np.random.default_rng([self.seed, 0x2B]).random(len(member)) < 0.2
        one, other = _torch(first - mean), _torch(second - mean)
        truth = torch.from_numpy(member.astype(np.float32))
        with seeded_fork(self.seed):
            # Orthonormal rows: at first W is a plain cosine in a random subspace.
            start = nn.init.orthogonal_(torch.empty(self.width, first.shape[1]))
        inside = nn.Parameter(start.T.contiguous())
        # σ(±5) is nearly 0 and 1: the range of a cosine spans that of the answer.
        slope = nn.Parameter(torch.tensor([5.0, 0.0]))

        def loss_of(rows: Flags) -> torch.Tensor:
            cosine = functional.cosine_similarity(one @ inside, other @ inside)
            losses = functional.binary_cross_entropy_with_logits(
                slope[0] * cosine + slope[1], truth, reduction="none"
            )
            return losses[torch.from_numpy(rows)].mean()

        network = nn.ParameterList([inside, slope])
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, weight_decay=self.decay
        )
        # Where no pair is left to learn from, or to choose on, the plain cosine stays.
        if tuning.any() and not tuning.all():
            descent = Descent(
                network, optimiser, lambda epoch: [~tuning], loss_of, lambda: loss_of(tuning)
            )
            run(descent, StoppingRule(self.steps - 1, watches_start=True))
        level = slope.detach()
        return Similarity(inside.detach().numpy(), float(level[0]), float(level[1]), mean)


@dataclass(frozen=True, eq=False)
class Similarity:
    """A fitted similarity: pairs in, the probability of membership out."""

    inside: Floats
    slope: float
    level: float
    mean: Floats

    def __call__(self, first: Floats, second: Floats) -> Floats:
        cosine = pair_scores(
            (first - self.mean) @ self.inside, (second - self.mean) @ self.inside, "cosine"
        )
        return np.asarray(1 / (1 + np.exp(-(self.slope * cosine + self.level))))


def threshold_of(scores: Floats, member: Flags) -> float:
    """The threshold with the largest TPR − FPR on auxiliary rows; scores at or above are members.

    >>> threshold_of(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    0.8
    """
    _both(member, "auxiliary rows")
    order = np.argsort(-scores, kind="stable")
    in_order = member[order]
    gain = np.cumsum(in_order) / in_order.sum() - np.cumsum(~in_order) / (~in_order).sum()
    # Rows of equal score lie on one side of any threshold: only the last of them may be one.
    last = np.r_[scores[order][1:] != scores[order][:-1], True]
    return float(scores[order][np.where(last, gain, -np.inf).argmax()])


@dataclass(frozen=True, eq=False)
class AuxiliaryScores:
    """One choice of the texts whose membership the attacker knows, and the scores it gives then."""

    scores: Floats
    auxiliary: Flags

    def take(self, rows: npt.NDArray[Any]) -> AuxiliaryScores:
        return AuxiliaryScores(self.scores[rows], self.auxiliary[rows])


def membership_findings(
    trials: Sequence[AuxiliaryScores],
    member: Flags,
    *,
    attacker: str,
    target: str = "windows",
    units: npt.NDArray[Any] | None = None,
    subgroup: str | None = None,
    seed: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> list[Finding]:
    """Advantage, AUC and TPR at 1 % (and 0.1 %) FPR on all rows that are not auxiliary; a null.

    `units` numbers the text (or writer) of each row: it is resampled whole, and must lie wholly in
    or outside the auxiliary rows of a trial. The null permutes membership among the units. A value
    is the mean over trials; its interval covers which texts are scored and which were known.
    """
    rows_in_all = len(member)
    unit = np.arange(rows_in_all) if units is None else np.unique(units, return_inverse=True)[1]
    for trial in trials:
        _check(trial.scores, member, trial.auxiliary, unit)
    random = np.random.default_rng([seed or 0, 0x2C])
    # The control: the same scores against membership that says nothing, unit by unit as in the
    # truth.
    nulls = [_permute(member, unit, trial.auxiliary, random) for trial in trials]
    bootstrap = Bootstrap.over(unit)
    others = min(int((~member & ~trial.auxiliary).sum()) for trial in trials)
    metrics = METRICS if others >= RARE else METRICS[:-1]
    rows = []
    for kind, truths in (("membership", [member] * len(trials)), ("membership-null", nulls)):
        for metric in metrics if kind == "membership" else ("advantage", "auc"):
            draws = [
                _draws(metric, trial, truth, unit, bootstrap)
                for trial, truth in zip(trials, truths, strict=True)
            ]
            interval = _over_trials(metric, draws, len(bootstrap.weights[0]))
            rows.append(
                Finding(
                    kind,
                    target,
                    metric,
                    *interval.ends,
                    chance=CHANCE[metric],
                    n=round(np.mean([(~trial.auxiliary).sum() for trial in trials])),
                    attacker=attacker,
                    seed=seed,
                    subgroup=subgroup,
                    parameters={
                        **(parameters or {}),
                        "people": len(bootstrap.weights[0]),
                        "by_choice": list(interval.by_seed),
                    },
                )
            )
    return rows


def _over_trials(metric: str, draws: Sequence[Floats], people: int) -> Score:
    """The mean over trials; its draws are those of one trial after another.

    So they vary with the choice of the known texts as much as one attacker's luck does: a mean of
    all trials in each draw would hide it.
    """
    by_choice = [float(values[0]) for values in draws]
    mixture = np.array([draws[at % len(draws)][at] for at in range(len(draws[0]))])
    mixture[0] = np.mean(by_choice)
    if metric != "advantage":
        return share_interval(mixture, people, by_choice)
    # From −1 to 1: as a share it is the balanced accuracy (1 + advantage)/2.
    share = share_interval((1 + mixture) / 2, people)
    return Score(float(mixture[0]), 2 * share.low - 1, 2 * share.high - 1, tuple(by_choice))


def tenths_of_words(centres: Ids, counts: npt.NDArray[np.integer[Any]]) -> Ids:
    """Which tenth of the centre words each window's lies in, rarest in 0 (`counts` is per word)."""
    present, place = np.unique(centres, return_inverse=True)
    return tenths_of(counts[present])[place]


def tenths_of(frequencies: npt.NDArray[Any]) -> Ids:
    """Which tenth each value lies in, the smallest in 0; equal ones fall into tenths at random."""
    random = np.random.default_rng(0x2D)
    order = np.lexsort((random.random(len(frequencies)), frequencies))
    tenth = np.empty(len(frequencies), dtype=np.int64)
    tenth[order] = np.arange(len(frequencies)) * DECILES // len(frequencies)
    return tenth


def by_tenth(
    trials: Sequence[AuxiliaryScores],
    tenths: Ids,
    members: Flags,
    units: npt.NDArray[Any],
    **options: Any,
) -> list[Finding]:
    """The findings of each tenth of the rows, rarest first.

    Each tenth has its own threshold, since rare words lie at other similarities than frequent ones.
    """
    rows = []
    for decile in range(DECILES):
        inside = tenths == decile
        member = members[inside]
        # Trials with too few windows on some side to choose a threshold or to score it drop out.
        parts = [
            part
            for part in (trial.take(inside) for trial in trials)
            if both_everywhere(member, part.auxiliary)
        ]
        if not parts:
            continue
        rows += membership_findings(
            parts,
            member,
            units=units[inside],
            subgroup=f"decile {decile + 1} by word frequency",
            **options,
        )
    return rows


def both_everywhere(member: Flags, inside: Flags) -> bool:
    """Whether members and others are among the rows inside, and among those outside."""
    return all((member & part).any() and (~member & part).any() for part in (inside, ~inside))


def _draws(
    metric: str, trial: AuxiliaryScores, member: Flags, unit: Ids, bootstrap: Bootstrap
) -> Floats:
    """The metric of one trial's scored rows, once per draw of weights of all units."""
    victims = ~trial.auxiliary
    truth, values = member[victims], trial.scores[victims]
    weights = bootstrap.weights[:, unit[victims]]
    if metric in ("auc", "tpr_at_1_fpr"):
        # `Guesses` compares two classes by the difference of their scores: ±v/2 give v.
        two = np.stack([-values, values], axis=1) / 2
        return replicates(metric, Guesses(truth.astype(np.intp), two, unit[victims]), weights)
    if metric == "tpr_at_01_fpr":
        return tpr_at(0.001, truth, values, weights)
    # Advantage: TPR − FPR at a threshold that no scored row has influenced.
    positive = values >= threshold_of(trial.scores[trial.auxiliary], member[trial.auxiliary])
    return advantages(positive, truth, weights)


def advantages(positive: Flags, member: Flags, weights: Floats) -> Floats:
    """TPR − FPR for each draw of weights; a draw without members, or without others, has none."""
    true_rate = weighted_means(weights, positive & member, member)
    return np.asarray(true_rate - weighted_means(weights, positive & ~member, ~member))


def _permute(member: Flags, unit: Ids, auxiliary: Flags, random: np.random.Generator) -> Flags:
    """Membership shuffled among the units of either part, so that each unit stays on one side."""
    first = np.zeros(int(unit.max()) + 1, dtype=bool)
    first[unit] = member
    # Part by part: a part without members would leave no threshold to choose.
    for part in (auxiliary, ~auxiliary):
        some = np.unique(unit[part])
        first[some] = random.permutation(first[some])
    return first[unit]


def _check(scores: Floats, member: Flags, auxiliary: Flags, unit: Ids) -> None:
    if not len(scores) == len(member) == len(auxiliary) == len(unit):
        raise DataError("scores, member labels and auxiliary flags differ in number")
    if not np.isfinite(scores).all():
        raise DataError("some scores are not finite; is a vector broken?")
    for name, part in (("auxiliary rows", auxiliary), ("rows to score", ~auxiliary)):
        _both(member[part], name)
    # A text whose membership is known and whose score counts would be scored by its own threshold.
    share = np.bincount(unit, auxiliary) / np.bincount(unit)
    if ((share > 0) & (share < 1)).any():
        raise DataError(
            "some texts are auxiliary and scored at once, which inflates scores; split by text"
        )


def _both(member: Flags, what: str) -> None:
    inside = int(np.count_nonzero(member))
    if not len(member) or inside in (0, len(member)):
        raise DataError(
            f"{inside} of {len(member)} {what} are members: membership needs members and "
            "non-members; name the column that says which is which"
        )


def _unit(vectors: Floats) -> Floats:
    wide = np.asarray(vectors, dtype=np.float64)
    return np.asarray(wide / np.maximum(np.linalg.norm(wide, axis=-1, keepdims=True), 1e-12))


def _torch(values: Floats) -> torch.Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
