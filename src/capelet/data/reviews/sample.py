"""The embedded sample: invented reviews whose leakage is known, because we made it.

An audit that says "the attacker guessed gender with 0.71" can only be judged beside the right
answer, and real corpora do not come with one. This generator does: it is a latent-variable model in
which the probability of a text given its writer's attributes is a finite sum, so the best possible
guess of each attribute from one text, by anyone, is computed and not estimated by an attacker.

How a text comes about
    writer ~ gender × age group × country, independent of each other (`PRIOR`)
    habits | writer, kept for all of the writer's texts:
        interest | gender, age      decides the category of what is reviewed
        voice | gender, age         decides emphasis: exclamation marks, capitals
        spelling | country          decides colour or color
    teller | writer, new for each text: who speaks in it. With probability `FIDELITY` the teller's
        gender is the account holder's own, and likewise age group and country; else it is another
        value (an account is shared in a family, people travel). What the text says of its
        teller's life, company and place depends on the teller alone.
    stars ~ `STARS`, new for each text and independent of the writer; the opinion depends on them.
    text = a pattern of sentences; each slot is filled once, independently given its one source.

Why the optimum is exact
    1. The text determines its choices. Each sentence of the grammar stands for one kind and one set
       of choices (`_lexicon` refuses anything else), and a text splits into sentences in one way.
    2. Each slot depends on one source only, and the sources are independent given the writer, so
           P(text | writer) = Π over sources  Σ over states  P(state | writer) Π P(choice | state).
       Habits persist across a writer's texts, but an attacker who holds one vector saw one text:
       the habit is summed out within the text, and nothing links it to others.
    3. P(attribute | text) sums that over the other attributes. The figures are means of the largest
       posterior over the corpus (see `optimum`). Stars are handled in the same way.

The posterior is computed from the text as it stands, never from what the generator remembers.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError

Floats = npt.NDArray[np.float64]
Choices = dict[str, int]
# Which fillers of a slot may be taken, by the slot's name.
Offer = Callable[[str], Iterable[int]]
Table = Mapping[str, Sequence[str]]

SEED = 20_200_601
WRITERS = 640
TEXTS_PER_WRITER = (4, 10)

PRIOR: dict[str, dict[str, float]] = {
    "gender": {"female": 0.54, "male": 0.46},
    "age_group": {"18-34": 0.36, "35-54": 0.36, "55+": 0.28},
    "country": {"UK": 0.28, "US": 0.28, "Australia": 0.22, "India": 0.22},
}
STARS: dict[str, float] = {"1": 0.16, "2": 0.17, "3": 0.19, "4": 0.23, "5": 0.25}

# How often the teller of a text has the account holder's own gender, age group, country.
FIDELITY = {"gender": 0.82, "age_group": 0.76, "country": 0.78}

# A filler that is typical of others is this much less likely than one that is typical of oneself.
OTHERS = {"interest": 0.14, "voice": 0.5, "spelling": 0.1, "category": 0.05, "emphasis": 0.1}
NEIGHBOUR = 0.12  # an opinion one star away; one further away does not occur

# The values as the tables of words call them.
_TAGS = {
    "gender": ("female", "male"),
    "age_group": ("young", "middle", "older"),
    "country": ("uk", "us", "australia", "india"),
}

# On what the fillers of a table depend: habits, the teller, the stars, or nothing.
_SOURCES = {
    **dict.fromkeys(("pattern", "aspect"), ""),
    **dict.fromkeys(("self", "company", "place", "city", "price"), "teller"),
    **dict.fromkeys(("very", "end"), "voice"),
    **dict.fromkeys(("grade", "closing"), "stars"),
    "category": "interest",
}


@dataclass(frozen=True)
class Reviews:
    """The corpus as parallel tuples, one entry per text."""

    texts: tuple[str, ...]
    stars: tuple[int, ...]
    gender: tuple[str, ...]
    age_group: tuple[str, ...]
    country: tuple[str, ...]
    author: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Optimum:
    """The best that anyone can do from one text, without any training error.

    `accuracy` is reached by the most probable value; `balanced_accuracy` by the most probable value
    under equal class priors. `hit_rate` and `balanced_hit_rate` are what these two rules really
    scored on the corpus: the same quantities with more noise, beside them as a check. `error` and
    `balanced_error` are standard errors of the corpus means, texts of one writer taken together.
    """

    accuracy: float
    balanced_accuracy: float
    chance: float
    majority: float
    hit_rate: float
    balanced_hit_rate: float
    error: float
    balanced_error: float


@dataclass(frozen=True)
class _Slot:
    """Fillers of one place in a text, and how likely each is in each state of the slot's source."""

    source: str
    fillers: tuple[str, ...]
    table: tuple[tuple[float, ...], ...]  # [state][filler]


def generate(writers: int = WRITERS, seed: int = SEED) -> Reviews:
    """The same corpus on every machine: it draws `random.Random(seed).random()` and nothing else.

    >>> sample = generate(writers=2)
    >>> sample.author[0], sample == generate(writers=2)
    ('w001', True)
    """
    if writers < 1:
        raise DataError(f"the sample needs at least one writer, got {writers}; the default is 640")
    random = Random(seed)
    rows: list[tuple[str, int, str, str, str, str]] = []
    for number in range(1, writers + 1):
        gender, age_group, country = (
            list(prior)[_draw(random, tuple(prior.values()))] for prior in PRIOR.values()
        )
        writer = _PEOPLE.index((gender, age_group, country))
        habits = {
            source: _draw(random, _states(source)[writer])
            for source in ("interest", "voice", "spelling")
        }
        low, high = TEXTS_PER_WRITER
        for _ in range(low + int(random.random() * (high - low + 1))):
            stars = _draw(random, tuple(STARS.values()))
            teller = _draw(random, _states("teller")[writer])
            state = {**habits, "teller": teller, "stars": stars, "": 0}
            text = _write(random, state)
            rows.append((text, stars + 1, gender, age_group, country, f"w{number:03d}"))
    return Reviews(*zip(*rows, strict=True))


def posterior(texts: Sequence[str], equal_priors: bool = False) -> dict[str, Floats]:
    """P(value | text) of every attribute and of the stars, from the text alone.

    Each entry has one row per text and one column per value, in the order of `PRIOR` and `STARS`.
    With `equal_priors` the attribute asked for has equal priors; the other attributes keep theirs.
    A text that the generator cannot write is a `DataError`.

    >>> text = generate(writers=1).texts[0]
    >>> posterior([text])["gender"].shape
    (1, 2)
    """
    result = {}
    for name, likelihood in _likelihoods(texts).items():
        joint = likelihood * _prior(name, equal_priors)
        result[name] = joint / joint.sum(axis=1, keepdims=True)
    return result


def optimum(corpus: Reviews | None = None) -> dict[str, Optimum]:
    """The right answer of an audit: for each attribute, and the stars, the best possible scores.

    accuracy = E[max_z P(z | text)], the mean over the corpus. For the balanced figure texts are
    wanted as they would be with equally many writers of each value, so each text weighs
    P_balanced(text) / P(text); the mean of weight × largest balanced posterior is unbiased for
    Σ_z P(hit | z) / k. Both are means over some 4,500 texts of exactly computed numbers; what
    is left of chance is which texts there happen to be, and `error` says how much that is.
    """
    corpus = corpus or generate()
    _, writer = np.unique(np.array(corpus.author), return_inverse=True)
    result = {}
    for name, likelihood in _likelihoods(corpus.texts).items():
        prior, equal = _prior(name, False), _prior(name, True)
        truth = np.array([list(_values(name)).index(str(item)) for item in getattr(corpus, name)])
        evidence = likelihood @ prior
        best = (likelihood * prior).max(axis=1) / evidence
        best_balanced = (likelihood * equal).max(axis=1) / evidence
        hit = (likelihood * prior).argmax(axis=1) == truth
        hit_balanced = likelihood.argmax(axis=1) == truth
        result[name] = Optimum(
            accuracy=float(best.mean()),
            balanced_accuracy=float(best_balanced.mean()),
            chance=1 / len(prior),
            majority=float(prior.max()),
            hit_rate=float(hit.mean()),
            balanced_hit_rate=float(
                np.mean([hit_balanced[truth == value].mean() for value in np.unique(truth)])
            ),
            error=_clustered_error(best, writer),
            balanced_error=_clustered_error(best_balanced, writer),
        )
    return result


# ── the model ────────────────────────────────────────────────────────────────────────────────────


@cache
def _words() -> dict[str, Any]:
    """The tables of words; what they mean stands in the file."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def _fillers(table: Table) -> tuple[str, ...]:
    return tuple(filler for group in table.values() for filler in group)


# Every (gender, age group, country), the states of a writer and of a teller alike; and the same in
# the words of the tables.
_PEOPLE = tuple(itertools.product(*PRIOR.values()))
_PEOPLE_TAGS = tuple(itertools.product(*_TAGS.values()))


@cache
def _states(source: str) -> tuple[tuple[float, ...], ...]:
    """P(state of the source | writer): one row per writer of `_PEOPLE`."""
    if source == "teller":
        return tuple(tuple(_fidelity(writer, teller) for teller in _PEOPLE) for writer in _PEOPLE)
    return _weigh(_words()[source], _PEOPLE_TAGS, OTHERS[source])[1]


def _fidelity(writer: tuple[str, ...], teller: tuple[str, ...]) -> float:
    result = 1.0
    for (name, prior), own, other in zip(PRIOR.items(), writer, teller, strict=True):
        fidelity = FIDELITY[name]
        result *= fidelity if own == other else (1 - fidelity) / (len(prior) - 1)
    return result


def _weigh(
    table: Table, states: Sequence[tuple[str, ...]], others: float
) -> tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]:
    """Fillers of a table, and P(filler | state).

    A filler's weight is 1, times `others` for each property in which its tags name values and the
    state has none of them. Plain Python sums: the same bits everywhere.
    """
    columns = list(zip(*states, strict=True))
    rows = []
    for state in states:
        weights = []
        for key, group in table.items():
            tags = set(key.split())
            misses = sum(
                bool(tags & set(column)) and value not in tags
                for value, column in zip(state, columns, strict=True)
            )
            weights += [others**misses] * len(group)
        total = sum(weights)
        rows.append(tuple(weight / total for weight in weights))
    return _fillers(table), tuple(rows)


def _slot(source: str, table: Table) -> _Slot:
    """A slot whose fillers depend on one source."""
    if source == "stars":
        rows = []
        for stars in STARS:
            # An opinion of a neighbouring star happens; a further one never does.
            near = {0: 1.0, 1: NEIGHBOUR}
            weights = [
                near.get(abs(int(key) - int(stars)), 0.0) / len(group)
                for key, group in table.items()
                for _ in group
            ]
            rows.append(tuple(weight / sum(weights) for weight in weights))
        return _Slot(source, _fillers(table), tuple(rows))
    if source in ("", "teller"):
        states: Sequence[tuple[str, ...]] = _PEOPLE_TAGS if source else [()]
    else:
        states = [(name,) for name in _fillers(_words()[source])]
    others = {"interest": OTHERS["category"], "voice": OTHERS["emphasis"]}.get(source, 0.0)
    return _Slot(source, *_weigh(table, states, others))


@cache
def _slots() -> dict[str, _Slot]:
    """The whole grammar by name; `name:category` and `name:family` go before `name`."""
    words = _words()
    slots = {name: _slot(source, words[name]) for name, source in _SOURCES.items()}
    slots["spelling"] = _slot("spelling", {"british": ("0",), "american": ("1",)})
    slots |= {name: _slot("", {"": fillers}) for name, fillers in words["small"].items()}
    for category, product in words["product"].items():
        slots[f"product:{category}"] = _slot("", {"": product["names"]})
        slots[f"part:{category}"] = _slot("", {"": product["parts"]})
    for name, source in (("opening", ""), ("reason", "teller"), ("verdict", "stars")):
        slots |= {f"{name}:{family}": _slot(source, words[name][family]) for family in words[name]}
    return slots


_OPEN = re.compile(r"\{(\w+)\}|\[([^|\]]*)\|([^\]]*)\]")
_SENTENCE_END = re.compile(r"(?<=[.!]) ")


@cache
def _find(name: str, category: str) -> str:
    """The slot that `{name}` means in a text of this category."""
    family = _words()["product"][category]["family"]
    return next(
        full for full in (f"{name}:{category}", f"{name}:{family}", name) if full in _slots()
    )


def _expand(
    name: str, category: str, choices: Choices, offer: Offer
) -> Iterator[tuple[str, Choices]]:
    """Every (string, choices) that a slot can become by the fillers that `offer` names of it.

    A slot that was filled before is filled alike: `choices` are those already made.
    """
    full = _find(name, category)
    for index in [choices[full]] if full in choices else offer(full):
        now = {**choices, full: index}
        yield from _fill(_slots()[full].fillers[index], category, now, offer)


def _fill(
    filler: str, category: str, choices: Choices, offer: Offer
) -> Iterator[tuple[str, Choices]]:
    """Every (string, choices) that a filler with open places can become, from left to right."""
    opening = _OPEN.search(filler)
    if opening is None:
        yield filler, choices
        return
    name, *spelt = opening.groups()
    for string, now in _expand(name or "spelling", category, choices, offer):
        word = spelt[int(string)] if name is None else string
        rest = filler[: opening.start()] + word + filler[opening.end() :]
        yield from _fill(rest, category, now, offer)


def _all_fillers(full: str) -> Iterable[int]:
    return range(len(_slots()[full].fillers))


# ── writing and reading ──────────────────────────────────────────────────────────────────────────


def _write(random: Random, state: Mapping[str, int]) -> str:
    """One text, its slots filled from left to right."""

    def offer(full: str) -> Iterator[int]:
        slot = _slots()[full]
        yield _draw(random, slot.table[state[slot.source]])

    (at,) = offer("category")
    category = _slots()["category"].fillers[at]
    ((pattern, choices),) = _expand("pattern", category, {"category": at}, offer)
    sentences = []
    for kind in pattern.split():
        ((sentence, choices),) = _expand(kind, category, choices, offer)
        sentences.append(sentence)
    return " ".join(sentences)


@cache
def _lexicon() -> dict[str, dict[str, tuple[str, Choices]]]:
    """For each category: sentence → (its kind, its choices); a sentence with two is refused."""
    kinds = {kind for pattern in _words()["pattern"][""] for kind in pattern.split()}
    result: dict[str, dict[str, tuple[str, Choices]]] = {}
    for category in _words()["product"]:
        sentences = result.setdefault(category, {})
        for kind in sorted(kinds):
            for sentence, choices in _expand(kind, category, {}, _all_fillers):
                # Point 1 of the proof above, checked over the whole grammar.
                if sentence in sentences or _SENTENCE_END.search(sentence):
                    raise ValueError(f"the grammar is ambiguous at {sentence!r} ({category})")
                sentences[sentence] = kind, choices
    return result


@cache
def _openings() -> dict[str, str]:
    """Opening sentence → category; products belong to one category, so this is a function."""
    result: dict[str, str] = {}
    for category, sentences in _lexicon().items():
        for sentence, (kind, _) in sentences.items():
            if kind == "opening" and result.setdefault(sentence, category) != category:
                raise ValueError(f"{sentence!r} opens texts of two categories")
    return result


def _read(text: str) -> Choices:
    """The choices that made a text: the inverse of `_write`."""
    sentences = _SENTENCE_END.split(text)
    category = next((_openings()[item] for item in sentences if item in _openings()), "")
    lexicon = _lexicon().get(category, {})
    choices: Choices = {}
    kinds = []
    for sentence in sentences:
        kind, own_choices = lexicon.get(sentence, ("", {}))
        if not kind or any(
            choices.get(name, index) != index for name, index in own_choices.items()
        ):
            raise DataError(f"the generator does not write {sentence!r}; give one of its own texts")
        kinds.append(kind)
        choices |= own_choices
    pattern = " ".join(kinds)
    slots = _slots()
    if pattern not in slots["pattern"].fillers:
        raise DataError(f"the generator does not write {pattern!r}; give one of its own texts")
    choices["category"] = slots["category"].fillers.index(category)
    choices["pattern"] = slots["pattern"].fillers.index(pattern)
    return choices


def _likelihoods(texts: Sequence[str]) -> dict[str, Floats]:
    """P(text | value), up to a factor of the text's own, for every attribute and the stars."""
    tables = {name: np.array(slot.table) for name, slot in _slots().items()}
    sources: dict[str, Any] = {
        name: np.array(_states(name)) for name in ("interest", "voice", "spelling", "teller")
    }
    sources["stars"] = np.eye(len(STARS))
    by_source = {name: np.ones((len(texts), rows.shape[1])) for name, rows in sources.items()}
    for row, text in enumerate(texts):
        for name, index in _read(text).items():
            source = _slots()[name].source
            if source:
                # Slots are independent given their source: a product over slots for each state.
                by_source[source][row] *= tables[name][:, index]
    shape = tuple(len(prior) for prior in PRIOR.values())
    writer = np.ones((len(texts), len(_PEOPLE)))
    for name in ("interest", "voice", "spelling", "teller"):
        # Σ over states of P(state | writer)·Π P(choice | state), then the product over sources.
        writer *= by_source[name] @ sources[name].T
    # Slots that no one writer fills so: then the text is not of this grammar.
    impossible = (writer.sum(axis=1) == 0) | (by_source["stars"].sum(axis=1) == 0)
    if impossible.any():
        text = texts[int(impossible.argmax())]
        raise DataError(f"no writer would write {text!r}; give one of the generator's own texts")
    joint = writer.reshape(len(texts), *shape)
    # Marginal over the other two attributes, which are independent of each other.
    gender, age, country = (_prior(name, False) for name in PRIOR)
    return {
        "gender": np.einsum("ngac,a,c->ng", joint, age, country),
        "age_group": np.einsum("ngac,g,c->na", joint, gender, country),
        "country": np.einsum("ngac,g,a->nc", joint, gender, age),
        "stars": by_source["stars"],
    }


def _values(name: str) -> dict[str, float]:
    return STARS if name == "stars" else PRIOR[name]


def _prior(name: str, equal: bool) -> Floats:
    values = np.array(list(_values(name).values()))
    return np.full(len(values), 1 / len(values)) if equal else values


def _clustered_error(values: Floats, cluster: npt.NDArray[np.intp]) -> float:
    """The standard error of a mean when the texts of one writer go together."""
    # Deviations are summed within a writer before they are squared (a cluster-robust error).
    sums = np.bincount(cluster, weights=values - values.mean())
    return float(np.sqrt((sums**2).sum()) / len(values))


def _draw(random: Random, probabilities: Sequence[float]) -> int:
    """An index with these probabilities, from one call of `random.random()`."""
    # Plain Python floats and one call each: the same sample on every machine.
    steps = list(itertools.accumulate(probabilities))
    return min(bisect_right(steps, random.random() * steps[-1]), len(steps) - 1)
