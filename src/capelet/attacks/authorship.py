"""Few-shot authorship: who of many wrote this, from a handful of labelled vectors of each writer.

Threat model: the attacker holds 10 to 50 texts of each candidate writer, sends them through the
same release, and fits a linear probe; the victims are other texts of the same writers. The baseline
sees what the vectors were made from: a convolutional network on the raw text (TextCNN), trained on
the same few texts. Where the vectors win, the encoder brought knowledge that helps to tell writers
apart (Song, Raghunathan 2020, section 6.3). The null permutes the labels of the known texts. A
score is the mean over writers of the share of their texts that is attributed rightly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from capelet.attacks.families import fit_quietly
from capelet.errors import DataError
from capelet.numerics import padded, standard_scale

Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.intp]

_STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)  # vectors are scaled to length about one


@dataclass(frozen=True, eq=False)
class Shots:
    """Which rows the attacker knows (`shots` of each writer) and which it must attribute."""

    training: Rows
    test: Rows
    codes: Codes
    writers: int

    @classmethod
    def of(
        cls,
        authors: Sequence[Any],
        shots: int = 10,
        writers: int = 100,
        tests: int = 40,
        seed: int = 0,
    ) -> Shots:
        """Draw writers, and for each of them texts to know and others to be scored.

        Writers with too few texts are left out; fewer than two are refused.
        """
        names, codes = np.unique(np.asarray(authors, dtype=str), return_inverse=True)
        counts = np.bincount(codes)
        # One text more than is known: there must be something left to attribute.
        able = np.flatnonzero(counts >= shots + 1)
        if len(able) < 2:
            raise DataError(
                f"{len(able)} of {len(names)} writers have {shots + 1} texts or more: authorship "
                "needs at least two such writers; ask for fewer texts of each"
            )
        random = np.random.default_rng([seed, 0x3A])
        sample = np.sort(random.permutation(able)[:writers])
        training, test = [], []
        for writer in sample:
            rows = random.permutation(np.flatnonzero(codes == writer))
            training.append(rows[:shots])
            test.append(rows[shots : shots + tests])
        place = np.full(len(names), -1)
        place[sample] = np.arange(len(sample))
        return cls(np.concatenate(training), np.concatenate(test), place[codes], len(sample))


class Probe(Protocol):
    """Who attributes texts by their vectors, from a few known ones of each writer."""

    @property
    def name(self) -> str: ...

    def scores(self, vectors: Floats, shots: Shots, codes: Codes) -> Floats:
        """A score per writer for each text to be attributed, from the codes of the known ones."""


@dataclass(frozen=True)
class LinearProbe:
    """Multinomial logistic regression; its strength is chosen by folds of the known texts."""

    strengths: Sequence[float] = _STRENGTHS
    seed: int = 0
    name: str = "linear"

    def scores(self, vectors: Floats, shots: Shots, codes: Codes) -> Floats:
        from sklearn.linear_model import LogisticRegression

        training, test = _standard(vectors[shots.training], vectors[shots.test])
        truth = codes[shots.training]
        # The strength is chosen among known texts only; no victim has a say in it.
        fold = np.random.default_rng([self.seed, 0x3B]).permutation(len(truth)) % 3

        def fit(strength: float, rows: npt.NDArray[np.bool_]) -> Any:
            model = LogisticRegression(C=strength, max_iter=1000, tol=1e-6)
            return fit_quietly(model, training[rows], truth[rows])

        def accuracy(strength: float) -> float:
            model = fit(strength, fold > 0)
            return float(model.score(training[fold == 0], truth[fold == 0]))

        best = max(self.strengths, key=accuracy)
        model = fit(best, np.ones(len(truth), dtype=bool))
        # A writer of whom nothing is known is never named.
        answer = np.full((len(test), shots.writers), -np.inf)
        answer[:, model.classes_] = model.predict_log_proba(test)
        return answer


@dataclass(frozen=True)
class Perceptron:
    """One hidden layer on the few known vectors: it reads what no linear probe can.

    Beside the linear one, since an encoder trained against readers may hide from those alone that
    are like them. Its sizes are fixed: with ten texts of a writer there is nothing to choose on.
    """

    width: int = 512
    dropout: float = 0.3
    epochs: int = 40
    learning_rate: float = 1e-3
    decay: float = 0.05
    seed: int = 0
    name: str = "mlp"

    def scores(self, vectors: Floats, shots: Shots, codes: Codes) -> Floats:
        import torch
        from torch import nn

        from capelet.training.device import seeded_fork
        from capelet.training.loop import Descent, StoppingRule, run
        from capelet.training.networks import dense

        # Back to deviation one in every coordinate: rates of a network are for such inputs.
        scale = np.sqrt(vectors.shape[1])
        teaching, victims = (
            torch.from_numpy(np.asarray(part * scale, dtype=np.float32))
            for part in _standard(vectors[shots.training], vectors[shots.test])
        )
        truth = torch.from_numpy(codes[shots.training].astype(np.int64))
        with seeded_fork(self.seed):
            body = dense([teaching.shape[1], self.width, shots.writers])
            network = nn.Sequential(nn.Dropout(self.dropout), body)
            optimiser = torch.optim.AdamW(
                network.parameters(), lr=self.learning_rate, weight_decay=self.decay
            )
            descent = Descent(
                network,
                optimiser,
                lambda epoch: torch.split(torch.randperm(len(truth)), 256),
                lambda rows: nn.functional.cross_entropy(network(teaching[rows]), truth[rows]),
            )
            run(descent, StoppingRule(self.epochs))
        with torch.inference_mode():
            return np.asarray(network.eval()(victims).double().numpy())


@dataclass(frozen=True)
class TextCnn:
    """The baseline on raw text: word vectors learnt from the known texts, filters, max-pooling.

    Kim (2014), widths 3, 4 and 5. It is stopped on a held-back fifth of the known texts.
    """

    width: int = 100
    filters: int = 100
    longest: int = 200
    epochs: int = 60
    patience: int = 8
    learning_rate: float = 2e-3
    seed: int = 0
    name: str = "text-cnn"

    def scores(self, texts: Sequence[Sequence[str]], shots: Shots, codes: Codes) -> Floats:
        import torch
        from torch.nn.functional import cross_entropy

        from capelet.training.device import seeded_fork
        from capelet.training.loop import Descent, StoppingRule, run

        vocabulary = _vocabulary([texts[row] for row in shots.training])
        training = torch.from_numpy(
            _number_rows([texts[row] for row in shots.training], vocabulary, self)
        )
        test = torch.from_numpy(_number_rows([texts[row] for row in shots.test], vocabulary, self))
        truth = torch.from_numpy(codes[shots.training].astype(np.int64))
        random = np.random.default_rng([self.seed, 0x3C])
        order = random.permutation(len(truth))
        # So few texts are learnt by heart within some epochs: a fifth of them says when to stop.
        tune, fit = order[: len(order) // 5], order[len(order) // 5 :]
        with seeded_fork(self.seed):
            network = _network(len(vocabulary) + 2, self, shots.writers)
            optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)

            def loss_of(rows: Rows) -> torch.Tensor:
                return cross_entropy(network(training[rows]), truth[rows])

            descent = Descent(
                network,
                optimiser,
                lambda epoch: np.array_split(random.permutation(fit), -(-len(fit) // 64)),
                loss_of,
                partial(loss_of, tune) if len(tune) else None,
            )
            # With nothing to say when to stop, it stops early.
            epochs = self.epochs if len(tune) else min(self.epochs, self.patience)
            run(descent, StoppingRule(epochs, self.patience))
            network.eval()
            with torch.no_grad():
                logits = [network(test[at : at + 256]) for at in range(0, len(test), 256)]
        return np.asarray(torch.cat(logits).numpy())


def _network(words: int, shape: TextCnn, writers: int) -> Any:
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(words, shape.width, padding_idx=0)
            self.filters = nn.ModuleList(
                # Padded by its width, a filter also sees texts shorter than itself.
                nn.Conv1d(shape.width, shape.filters, size, padding=size - 1)
                for size in (3, 4, 5)
            )
            self.drop = nn.Dropout(0.5)
            self.out = nn.Linear(3 * shape.filters, writers)

        def forward(self, ids: Any) -> Any:
            import torch

            inside = self.table(ids).transpose(1, 2)
            features = [torch.relu(layer(inside)).amax(dim=2) for layer in self.filters]
            return self.out(self.drop(torch.cat(features, dim=1)))

    return Network()


def _vocabulary(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    # Sorted: a word's number decides its first weights, and the order of a set changes between
    # runs.
    words = sorted({word for text in texts for word in text})
    return {word: number for number, word in enumerate(words, 2)}


def _number_rows(
    texts: Sequence[Sequence[str]], vocabulary: dict[str, int], shape: TextCnn
) -> npt.NDArray[np.int64]:
    """Word numbers of each text, cut and padded; 0 is nothing, 1 a word never seen."""
    longest = max(5, min(shape.longest, max((len(text) for text in texts), default=5)))
    return padded([[vocabulary.get(word, 1) for word in text[:longest]] for text in texts], longest)


def _standard(training: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Standardised by the known texts alone, then scaled to length about one; dead axes are 0."""
    mean, scale = standard_scale(training)
    # Each of d standardised coordinates has variance 1; divided by √d, vectors of any encoder have
    # length about one, and one grid of strengths fits all.
    scale = scale / np.sqrt(max(int(np.count_nonzero(scale)), 1))
    return (training - mean) * scale, (test - mean) * scale
