"""White-box inversion by sparse coding: which few words have this mean vector? (eq. 7)

Threat model: the attacker also holds the encoder's token table. It learns on released vectors of
its own texts a linear map (ridge, with intercept) from a released vector to the mean of the input
token vectors, and writes that mean as a non-negative sum of few words:

    minimise over z ≥ 0   ½·‖(z·D − M(x))·W‖² + Σ_w λ_w·z_w

D holds one row per word (the sum of its tokens' vectors). Two things beyond Song and Raghunathan
(2020), eq. 7: W whitens the error that M makes on auxiliary texts, so that directions that the
vector does not determine do not count; and λ_w is larger for words that are rare in auxiliary text.
Coefficients scale as 1/length, so the length is estimated too, and a coefficient times the length,
with the word's frequency, gives the probability that the word is there (logistic, on held-back
auxiliary texts). All sentences are solved at once by accelerated projected gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from capelet.attacks.families import fit_quietly
from capelet.attacks.inversion.word_sets import (
    MOST,
    Floats,
    Ids,
    Vocabulary,
    WordSets,
    best_cut,
    compare,
    cut_sets,
    draws_of,
    tuned_cut,
)
from capelet.data.text import word_spans
from capelet.errors import DataError
from capelet.interfaces import Progress, silent
from capelet.training.device import choose

if TYPE_CHECKING:
    from torch import Tensor

# Texts to token ids and character spans, without special tokens.
Tokens = Callable[[Sequence[str]], list[tuple[list[int], list[tuple[int, int]]]]]


@dataclass(frozen=True, eq=False)
class Dictionary:
    """One row per way to write a word (the sum of its tokens' vectors), and one per other token.

    `word` is the vocabulary's number of each row, −1 for what a mean holds but nobody asks for:
    punctuation, and the pieces that words outside the vocabulary are made of (without them, a new
    word would be explained by known ones that share a piece). `counts` says how often auxiliary
    texts hold each row; of a piece, how often words seen only once hold it.
    """

    rows: Floats
    word: Ids
    counts: Ids

    @classmethod
    def of(
        cls, texts: Sequence[str], tokens: Tokens, table: Floats, vocabulary: Vocabulary
    ) -> Dictionary:
        """Read off auxiliary texts how each word of the vocabulary is cut into tokens."""
        place = {word: number for number, word in enumerate(vocabulary.words)}
        counts: Counter[tuple[int, tuple[int, ...]]] = Counter()
        every: Counter[tuple[int, ...]] = Counter()
        for start in range(0, len(texts), 1024):
            block = list(texts[start : start + 1024])
            for text, (ids, spans) in zip(block, tokens(block), strict=True):
                for word, pieces in _pieces(text, ids, spans):
                    # −1 is what is no word, −2 a word outside the vocabulary, of which only the
                    # pieces count below.
                    number = place.get(word, -2) if word else -1
                    if number > -2:
                        counts[number, pieces] += 1
                    if len(pieces) > 1:
                        every[pieces] += 1
        if not counts:
            raise DataError("no word of the auxiliary texts has a token; give other texts")
        present = {number for number, _ in counts}
        absent = [word for number, word in enumerate(vocabulary.words) if number not in present]
        for word, (ids, _) in zip(absent, tokens(absent), strict=True):
            if ids:
                # A word that no auxiliary text holds can still be named: the encoder's tokenizer
                # says how it is cut.
                counts[place[word], tuple(ids)] += 0
        # How often a piece stands in words met once estimates how often it will in words never met.
        for pieces, times in every.items():
            for piece in pieces if times == 1 else ():
                counts[-1, (piece,)] += 1
        numbers = np.array([number for number, _ in counts], dtype=np.int64)
        rows = np.stack([table[list(pieces)].sum(axis=0) for _, pieces in counts])
        return cls(rows.astype(np.float32), numbers, np.array(list(counts.values())))


def _pieces(
    text: str, ids: Sequence[int], spans: Sequence[tuple[int, int]]
) -> list[tuple[str, tuple[int, ...]]]:
    """The tokens of each word of a text; each token outside all words stands alone, as ''."""
    words = word_spans(text)
    by_word: list[list[int]] = [[] for _ in words]
    alone: list[int] = []
    at = 0
    for number, (_, end) in zip(ids, spans, strict=True):
        last = end - 1  # a token may begin with the blank before its word
        while at < len(words) and words[at][2] <= last:
            at += 1
        if at < len(words) and words[at][1] <= last:
            by_word[at].append(number)
        else:
            alone.append(number)
    inside = [
        (word, tuple(pieces)) for (word, _, _), pieces in zip(words, by_word, strict=True) if pieces
    ]
    return [*inside, *(("", (number,)) for number in alone)]


def token_means(texts: Sequence[str], tokens: Tokens, table: Floats) -> tuple[Floats, Ids]:
    """The mean token vector of each text (layer 0 of eq. 7), and how many tokens it has."""
    means = np.zeros((len(texts), table.shape[1]), dtype=np.float32)
    lengths = np.zeros(len(texts), dtype=np.int64)
    for start in range(0, len(texts), 1024):
        for row, (ids, _) in enumerate(tokens(texts[start : start + 1024]), start):
            lengths[row] = len(ids)
            if ids:
                means[row] = table[ids].mean(axis=0)
    return means, lengths


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted linear map with intercept."""

    slope: Floats
    level: Floats

    def __call__(self, vectors: Floats) -> Floats:
        return np.asarray(vectors @ self.slope + self.level)

    @classmethod
    def fit(cls, inputs: Floats, targets: Floats, tune: tuple[Floats, Floats]) -> Ridge:
        """The penalty (in units of the mean variance) is the best one on the rows to tune on."""
        wide, outputs = inputs.astype(np.float64), targets.astype(np.float64)
        middle, level = wide.mean(axis=0), outputs.mean(axis=0)
        wide = wide - middle
        # One decomposition serves all penalties: (XᵀX + p·I)⁻¹ = A·(Λ + p)⁻¹·Aᵀ. In float64, since
        # float32 loses the small eigenvalues of XᵀX.
        values, axes = np.linalg.eigh(wide.T @ wide)
        cross = axes.T @ (wide.T @ (outputs - level))
        # Penalties are relative to it, so that one grid fits encoders of any scale.
        unit = max(values.mean(), 1e-30)
        best: tuple[float, Ridge] | None = None
        for penalty in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0):
            slope = axes @ (cross / (np.maximum(values, 0) + penalty * unit)[:, None])
            ridge = cls(slope, level - middle @ slope)
            error = float(((ridge(tune[0]) - tune[1]) ** 2).mean())
            if best is None or error < best[0]:
                best = (error, ridge)
        assert best is not None
        return best[1]


def whitener(errors: Floats) -> Floats:
    """A matrix that gives the map's errors unit covariance, shrunk where few rows speak."""
    rows, width = errors.shape
    covariance = errors.T.astype(np.float64) @ errors / rows
    mean = np.trace(covariance) / width
    # With few rows the covariance has directions without any error, which whitening would blow up.
    shrink = min(0.5, 0.01 + width / (width + rows) * 0.1)
    values, axes = np.linalg.eigh((1 - shrink) * covariance + shrink * mean * np.eye(width))
    return np.asarray((axes / np.sqrt(np.maximum(values, 1e-12 * mean + 1e-30))) @ axes.T)


def sparse_code(
    targets: Floats,
    dictionary: Floats,
    penalty: Floats,
    steps: int = 100,
    rounds: int = 6,
    working: int = 96,
    device: str | None = None,
    progress: Progress = silent,
) -> tuple[Ids, Floats]:
    """The largest coefficients of each target: `(rows, MOST)` places in the dictionary and values.

    Few of the words can be active, so each target is solved on a working set of `working` rows by
    accelerated projected gradient (FISTA), in which a step costs one small product with the set's
    own inner products. After each round the gradient of all rows says who must join the set. Many
    targets go together, as one batch of products.
    """
    import torch

    where = choose(device)
    # Each target holds a matrix of inner products of its own working set.
    block = 2048 if where.type == "cuda" else 64
    atoms = torch.from_numpy(np.ascontiguousarray(dictionary, dtype=np.float32)).to(where)
    # Rows of length one are the same problem, better conditioned, and fair to short rows.
    norms = atoms.norm(dim=1).clamp(min=1e-12)
    atoms = atoms / norms[:, None]
    # A coefficient of a row of length one is ‖d‖ times as large: its price is λ/‖d‖.
    cost = torch.from_numpy(np.asarray(penalty, dtype=np.float32)).to(where) / norms
    most, size = min(MOST, len(dictionary)), min(working, len(dictionary))
    rounds = 1 if size == len(dictionary) else rounds  # nobody is left to join
    places, values = [], []
    for start in range(0, len(targets), block):
        batch = torch.from_numpy(np.asarray(targets[start : start + block], dtype=np.float32))
        code = _encode(batch.to(where), atoms, cost, steps, rounds, size)
        # Back to amounts of the rows as they were.
        top = (code / norms).topk(most, dim=1)
        places.append(top.indices.cpu().numpy())
        values.append(top.values.cpu().numpy())
        progress("sparse coding", min(start + block, len(targets)), len(targets))
    return np.concatenate(places), np.concatenate(values)


def _encode(
    targets: Tensor, atoms: Tensor, cost: Tensor, steps: int, rounds: int, size: int
) -> Tensor:
    import torch

    code = torch.zeros(len(targets), len(atoms), device=targets.device)
    pull = targets @ atoms.T - cost  # minus the gradient at zero
    toward = pull
    for _ in range(rounds):
        # Active rows stay; the others join by how much the optimality conditions are violated
        # there.
        working_set = toward.masked_fill(code > 0, torch.inf).topk(size, dim=1).indices
        some = atoms[working_set]
        inner = some @ some.transpose(1, 2)
        small = _fista(inner, pull.gather(1, working_set), code.gather(1, working_set), steps)
        code = torch.zeros_like(code).scatter_(1, working_set, small)
        # Positive entries of `toward` outside the set violate them: the solution is not yet
        # optimal.
        reconstruction = (small[:, None, :] @ some)[:, 0]
        toward = pull - reconstruction @ atoms.T
    return code


def _fista(inner: Tensor, pull: Tensor, start: Tensor, steps: int) -> Tensor:
    """Minimise ½·z·G·z − z·p over z ≥ 0 for many (G, p) at once; momentum restarts when it errs."""
    import torch

    direction = pull.abs() + 1e-6
    for _ in range(8):  # the largest eigenvalue, by the power method
        direction = direction / direction.norm(dim=1, keepdim=True).clamp(min=1e-30)
        direction = (inner @ direction[:, :, None])[:, :, 0]
    # 1/L. The power method finds the largest eigenvalue from below, hence 5 % more.
    step_size = 1 / (1.05 * direction.norm(dim=1, keepdim=True).clamp(min=1e-30))
    code, ahead = start, start
    momentum = torch.ones_like(step_size)
    for step in range(steps):
        gradient = (inner @ ahead[:, :, None])[:, :, 0] - pull
        new = (ahead - step_size * gradient).clamp_(min=0.0)
        # The momentum points uphill: restart it (O'Donoghue, Candès 2015, gradient scheme).
        wrong = ((ahead - new) * (new - code)).sum(dim=1, keepdim=True) > 0
        momentum = torch.where(wrong, torch.ones_like(momentum), momentum)
        # t' = (1 + √(1 + 4t²))/2 (Beck, Teboulle 2009).
        following = (1 + (1 + 4 * momentum**2).sqrt()) / 2
        change = new - code
        ahead = new + (momentum - 1) / following * change
        code, momentum = new, following
        # Each look waits for the device, so it is not taken in every step.
        if step % 10 == 9 and float(change.abs().max()) < 1e-5 * float(new.max()):
            break
    return code


@dataclass(frozen=True)
class SparseCoding:
    """Eq. 7: map a released vector to a mean of token vectors, and write that as few words.

    `directions` is where vector and words meet: `back` maps the vector to the mean of token vectors
    (the paper's form), `forward` maps the words to the released space, which does not shrink what
    the vector says. `penalties` are in units of a typical word's squared length; `rarity` is how
    much more a word costs for each factor e that it is rarer. What is best on held-back auxiliary
    texts is kept. `directions=("back",)`, `whiten=False` and `rarity=(0,)` give the paper's form.
    """

    directions: Sequence[str] = ("back", "forward")
    penalties: Sequence[float] = (0.01, 0.03, 0.1, 0.2)
    rarity: Sequence[float] = (0.15, 0.4)
    steps: int = 100
    whiten: bool = True
    tune: int = 1500
    seed: int = 0
    device: str | None = None

    def fit(
        self,
        vectors: Floats,
        texts: Sequence[str],
        tokens: Tokens,
        table: Floats,
        vocabulary: Vocabulary,
        progress: Progress = silent,
    ) -> SparseInverter:
        """Learn map, whitening, length, penalty and thresholds on auxiliary texts only."""
        draws = draws_of(vectors, len(texts))
        dictionary = Dictionary.of(texts, tokens, table, vocabulary)
        means, lengths = token_means(texts, tokens, table)
        order = np.random.default_rng([self.seed, 0x1B]).permutation(len(texts))
        tenth = min(max(len(texts) // 5, 20), self.tune)
        tune, fit = order[:tenth], order[tenth:]
        inputs = draws[:, fit].reshape(-1, draws.shape[2])
        targets = np.tile(np.hstack([means, lengths[:, None]])[fit], (len(draws), 1))
        tuning_vectors = draws[0][tune]
        # Coefficients of a mean scale as 1/length; times the length they are counts of words.
        length = Ridge.fit(inputs, targets[:, -1:], (tuning_vectors, 1.0 * lengths[tune, None]))
        # A linear map has no bounds; lengths that hardly any text has are its errors.
        shortest, longest = np.quantile(lengths[fit], [0.01, 0.99])
        # Both directions are kept until held-back texts decide.
        candidates = []
        for direction in self.directions:
            back_map, rows, errors = _linear(
                direction, (inputs, targets[:, :-1]), (tuning_vectors, means[tune]), dictionary.rows
            )
            white = whitener(errors) if self.whiten else np.eye(errors.shape[1])
            candidates.append(
                SparseInverter(
                    self,
                    direction,
                    back_map,
                    length,
                    (float(shortest), float(longest)),
                    white,
                    replace(dictionary, rows=(rows @ white).astype(np.float32)),
                    vocabulary,
                )
            )
        truth = vocabulary.sets([texts[row] for row in tune])
        return _best_of(candidates, tuning_vectors, truth).calibrate(
            tuning_vectors, truth, progress
        )


def _linear(
    direction: str, fit: tuple[Floats, Floats], tune: tuple[Floats, Floats], rows: Floats
) -> tuple[Ridge, Floats, Floats]:
    """Where vector and words meet: the map of a vector, the words' rows there, and its errors."""
    if direction == "back":
        ridge = Ridge.fit(*fit, tune)
        return ridge, rows, ridge(fit[0]) - fit[1]
    ahead = Ridge.fit(fit[1], fit[0], (tune[1], tune[0]))
    identity = np.eye(fit[0].shape[1])
    # The released vector stays as it is but for the intercept; the words move instead.
    return Ridge(identity, -ahead.level), rows @ ahead.slope, ahead(fit[1]) - fit[0]


def _best_of(
    candidates: Sequence[SparseInverter], vectors: Floats, truth: WordSets
) -> SparseInverter:
    """The direction and penalties with the highest F1 on some of the held-back texts."""
    # Sixteen combinations are tried by default: some texts settle which is best, and all of them
    # calibrate it.
    few = np.arange(min(300, len(truth)))
    some = truth.take(few)
    best: tuple[float, SparseInverter] | None = None
    for rough in candidates:
        for penalty, rarity in product(rough.attack.penalties, rough.attack.rarity):
            inverter = replace(rough, penalty=penalty, rarity=rarity).calibrate(vectors[few], some)
            guess = inverter.predict(vectors[few])
            f1 = float(compare(guess, some, len(rough.vocabulary)).f1.mean())
            if best is None or f1 > best[0]:
                best = (f1, inverter)
    if best is None:
        raise DataError("no penalty was given to try; name at least one")
    return best[1]


@dataclass(frozen=True, eq=False)
class SparseInverter:
    """A fitted sparse-coding attacker: vectors in, word sets out."""

    attack: SparseCoding
    direction: str
    back_map: Ridge
    length: Ridge
    bounds: tuple[float, float]
    white: Floats
    dictionary: Dictionary
    vocabulary: Vocabulary
    penalty: float = 0.01
    rarity: float = 0.0
    slopes: Floats | None = None
    weight: float = 1.0

    def predict(self, vectors: Floats, progress: Progress = silent) -> WordSets:
        """The set of words that each vector is thought to come from."""
        words, chances, sizes = self.rank(vectors, progress)
        return cut_sets(words, best_cut(chances, sizes, self.weight))

    def rank(self, vectors: Floats, progress: Progress = silent) -> tuple[Ids, Floats, Floats]:
        """Words by the probability that each is right, those probabilities, and set sizes."""
        words, amounts = self.encode(vectors, progress)
        chances = self._chances(words, amounts)
        order = np.argsort(-chances, axis=1, kind="stable")
        chances = np.take_along_axis(chances, order, axis=1)
        return np.take_along_axis(words, order, axis=1), chances, chances.sum(axis=1)

    def encode(self, vectors: Floats, progress: Progress = silent) -> tuple[Ids, Floats]:
        """Words, and how often each would have to stand in the text."""
        lengths = np.clip(self.length(vectors)[:, 0], *self.bounds)
        places, values = sparse_code(
            self.back_map(vectors) @ self.white,
            self.dictionary.rows,
            self._costs(),
            self.attack.steps,
            device=self.attack.device,
            progress=progress,
        )
        return _by_word(self.dictionary.word[places], values * lengths[:, None])

    def _costs(self) -> Floats:
        """λ of each row: a share of the largest useful one, more for words that are rare."""
        counts = np.maximum(self.dictionary.counts, 0.5)
        # A word that stands once in a text of usual length pulls with ‖d‖²/length: λ as a share of
        # that.
        scale = np.median((self.dictionary.rows**2).sum(axis=1)) / np.mean(self.bounds)
        rare = np.log(counts.max() / counts)
        above = (rare - np.average(rare, weights=counts)).clip(-2)
        return np.asarray(self.penalty * scale * (1 + self.rarity * above))

    def _features(self, words: Ids, amounts: Floats) -> Floats:
        size = np.log(amounts.clip(1e-4))
        rare = np.log(self.vocabulary.shares)[words.clip(0)]
        place = np.log1p(np.arange(words.shape[1]))[None, :] + 0 * size
        return np.stack([size, size**2, rare, rare * size, place], axis=2)

    def _chances(self, words: Ids, amounts: Floats) -> Floats:
        from scipy.special import expit

        if self.slopes is None:
            return np.where((words >= 0) & (amounts > 0), amounts.clip(0, 1), 0.0)
        chances = expit(self._features(words, amounts) @ self.slopes[:-1] + self.slopes[-1])
        return np.where((words >= 0) & (amounts > 0), chances, 0.0)

    def calibrate(
        self, vectors: Floats, truth: WordSets, progress: Progress = silent
    ) -> SparseInverter:
        """Learn from coefficients and frequencies how likely a word is; then how many to name."""
        from sklearn.linear_model import LogisticRegression

        words, amounts = self.encode(vectors, progress)
        size = len(self.vocabulary)
        present = (words >= 0) & (amounts > 0)
        rows = np.nonzero(present)[0]
        right = np.isin(rows * size + words[present], truth.rows * size + truth.ids)
        if right.all() or not right.any():
            return self
        # The paper cuts at one coefficient for all words; a learnt probability also knows which
        # words are frequent.
        model = LogisticRegression(max_iter=500)
        fit_quietly(model, self._features(words, amounts)[present], right)
        inverter = replace(self, slopes=np.r_[model.coef_[0], model.intercept_])
        return replace(inverter, weight=tuned_cut(*inverter.rank(vectors), truth, size))


def _by_word(words: Ids, amounts: Floats) -> tuple[Ids, Floats]:
    """Add up the ways to write one word; the largest amounts come first."""
    order = np.lexsort((-amounts, words), axis=1)
    same = np.take_along_axis(words, order, axis=1)
    first = np.ones_like(same, dtype=bool)
    first[:, 1:] = same[:, 1:] != same[:, :-1]
    flat = np.take_along_axis(amounts, order, axis=1)
    # Runs of one word, summed at once.
    starts = np.flatnonzero(first.ravel())
    total = np.zeros(same.size)
    total[starts] = np.add.reduceat(flat.ravel(), starts)
    sums = np.where(first & (same >= 0), total.reshape(same.shape), 0.0)
    again = np.argsort(-sums, axis=1, kind="stable")
    return (
        np.take_along_axis(np.where(sums > 0, same, -1), again, axis=1),
        np.take_along_axis(sums, again, axis=1),
    )
