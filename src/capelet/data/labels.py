"""What is derived from a corpus: classes, bins, presence attributes and topics of the texts.

Nothing is dropped silently. Missing values stay missing and are counted; classes too rare to be
measured are merged into `(other)`, numbers with many values are cut into thirds, and each of these
is written down in the attribute's notes, which the report prints. A column that tells people or
texts apart is no attribute and is refused, without a word of what stands in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from capelet.data import messages
from capelet.data.corpus import Corpus, Values
from capelet.data.text import long_words
from capelet.errors import DataError, did_you_mean, name_field

# A numeric attribute with more values than this is cut into thirds.
MANY_VALUES = 12
# A class with fewer rows than this cannot be measured on a fifth of the data.
RARE = 20
OTHER = "(other)"
# An identifier, a name or a text: more than half of the values differ from all others. Whole
# numbers repeat less by nature (incomes, years), so of them almost all must differ.
IDENTIFIER_SHARE, NUMBER_SHARE = 0.5, 0.9
# How many of the most frequent person names `--derive names` asks about.
NAMES = 5
# How many topics `--derive topics` looks for.
TOPICS = 10


@dataclass(frozen=True, eq=False)
class Attribute:
    """A secret or a task as classes: `codes[row]` indexes `classes`, −1 where missing.

    `from_all_rows` says that frequencies decided its classes, or that it is one at all: thirds,
    merged rare classes, frequent values of lists. One row can then change the class of others.
    """

    name: str
    codes: npt.NDArray[np.intp]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    from_all_rows: bool = False

    @property
    def missing(self) -> int:
        return int((self.codes < 0).sum())

    def counts(self) -> dict[str, int]:
        return {name: int((self.codes == code).sum()) for code, name in enumerate(self.classes)}

    def prior(self) -> list[float]:
        counts = np.array(list(self.counts().values()), dtype=float)
        return [float(share) for share in counts / counts.sum()]


def attributes(
    columns: Mapping[str, Values],
    bins: Mapping[str, Sequence[float]] | None = None,
    rare: int = RARE,
) -> list[Attribute]:
    """Every column as classes; a column of lists becomes one presence attribute per value."""
    result: list[Attribute] = []
    for name, values in columns.items():
        if any(isinstance(value, list | tuple) for value in values):
            result.extend(multi_label(name, values, rare))
        else:
            result.append(attribute(name, values, (bins or {}).get(name), rare))
    return result


def attribute(
    name: str, values: Values, edges: Sequence[float] | None = None, rare: int = RARE
) -> Attribute:
    """One column as classes, with bins for numbers and `(other)` for what is rare.

    >>> ages = np.array([23, 31, 64, None] * 20, dtype=object)
    >>> attribute("age", ages, edges=[30, 60]).counts()
    {'below 30': 20, '30 to below 60': 20, '60 or more': 20}
    """
    notes: list[str] = []
    present = [value for value in values if value is not None]
    numeric = bool(present) and all(map(_is_number, present))
    if edges is not None and not numeric:
        raise messages.not_numeric(name)
    if edges is None:
        _refuse_identifier(name, present, numeric, rare)
    is_cut = numeric and (edges is not None or len(set(present)) > MANY_VALUES)
    if is_cut:
        names, classes = _bin(values, edges, notes)
    else:
        names = np.array(
            [None if value is None else _name(value) for value in values], dtype=object
        )
        classes = _in_order(set(present))
    separate_classes = classes
    names, classes = _merge_rare(names, classes, rare, notes)
    from_all_rows = (is_cut and edges is None) or classes != separate_classes
    _check(name, names, classes, rare)
    index = {value_name: code for code, value_name in enumerate(classes)}
    codes = np.array(
        [-1 if value_name is None else index[value_name] for value_name in names], dtype=np.intp
    )
    missing = int((codes < 0).sum())
    if missing:
        notes.append(f"{missing} rows have no value; they are left out of this attribute only")
    return Attribute(name, codes, tuple(classes), tuple(notes), from_all_rows)


def multi_label(name: str, values: Values, rare: int = RARE) -> list[Attribute]:
    """A column of lists as presence attributes `name=value`, one for each frequent value."""
    counts: Counter[str] = Counter()
    for value in values:
        # Each value once per row, in order: values that are equally frequent stay in this order
        # in a report, where a set would mix them anew in every run.
        counts.update(list(dict.fromkeys(_name(item) for item in value or ())))
    present = sum(value is not None for value in values)
    frequent = [item for item, count in counts.most_common() if rare <= count <= present - rare]
    if not frequent:
        raise DataError(
            f"{name!r} holds lists, and none of its {len(counts)} values is on at least {rare} "
            f"rows and missing from at least {rare}; such an attribute cannot be measured"
        )
    note = f"one of {len(counts)} values of the list column {name!r}"
    if len(frequent) < len(counts):
        note += f"; {len(counts) - len(frequent)} values too rare or too common are not measured"
    result = []
    for item in frequent:
        flags = _yes_no(None if value is None else item in map(_name, value) for value in values)
        one = attribute(f"{name}={item}", flags, rare=rare)
        result.append(replace(one, notes=(note, *one.notes), from_all_rows=True))
    return result


def _yes_no(flags: Iterable[object]) -> Values:
    """Presence as classes; None where nobody knows."""
    words = [None if flag is None else ("yes" if flag else "no") for flag in flags]
    return np.array(words, dtype=object)


def _name(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _in_order(present: set[object]) -> list[str]:
    """Class names, numbers by size and everything else by spelling."""
    try:
        values = sorted(present)  # type: ignore[type-var]
    except TypeError:
        values = sorted(present, key=str)
    return list(dict.fromkeys(_name(value) for value in values))


def _bin(
    values: Values, edges: Sequence[float] | None, notes: list[str]
) -> tuple[Values, list[str]]:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    if edges is None:
        # Values that occur, so that a border can be named; equal cuts fall together.
        cuts = np.unique(np.nanquantile(numbers, [1 / 3, 2 / 3], method="nearest"))
        notes.append(
            f"{len(np.unique(numbers[~np.isnan(numbers)]))} numeric values, cut into thirds at "
            + " and ".join(f"{edge:g}" for edge in cuts)
        )
    else:
        cuts = np.unique(np.asarray(edges, dtype=float))
        notes.append("cut at " + " and ".join(f"{edge:g}" for edge in cuts) + ", as asked")
    intervals = [f"below {cuts[0]:g}"]
    intervals += [f"{low:g} to below {high:g}" for low, high in pairwise(cuts)]
    intervals.append(f"{cuts[-1]:g} or more")
    # A value at a border belongs above it, as "30 to below 60" says.
    places = np.searchsorted(cuts, numbers, side="right")
    names = np.array(
        [
            None if np.isnan(x) else intervals[place]
            for x, place in zip(numbers, places, strict=True)
        ],
        dtype=object,
    )
    return names, [name for name in intervals if name in set(names)]


def _is_number(value: object) -> bool:
    # In Python True is an int; here it is a class.
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_identifier(name: str, present: list[object], numeric: bool, rare: int) -> None:
    """Almost all values differ: guessing them is no attribute inference, and naming them a leak."""
    distinct = len(set(present))
    if numeric and not all(float(value).is_integer() for value in present):  # type: ignore[arg-type]
        return  # a measurement, however many values it has
    share = NUMBER_SHARE if numeric else IDENTIFIER_SHARE
    if distinct > max(rare, share * len(present)):
        raise messages.identifier(name, distinct, len(present), numeric)


def _merge_rare(
    names: Values, classes: list[str], rare: int, notes: list[str]
) -> tuple[Values, list[str]]:
    counts = Counter(name for name in names if name is not None)
    few = {name for name, count in counts.items() if count < rare}
    # A single rare class may be a slip of somebody's pen: whoever has one decides (--merge-rare).
    # And of only rare classes nothing would be left.
    if len(few) < 2 or len(few) == len(counts):
        return names, classes
    return _merge(names, classes, few, rare, notes)


def _merge(
    names: Values, classes: list[str], few: set[str], rare: int, notes: list[str]
) -> tuple[Values, list[str]]:
    """The rare classes as `(other)`, or left out where even together they are too few."""
    rows = sum(name in few for name in names)
    what, verb = ("1 class", "was") if len(few) == 1 else (f"{len(few)} classes", "were")
    together = f"{rows} row{'' if rows == 1 else 's'}"
    others = [name for name in classes if name not in few]
    if rows < rare:
        notes.append(
            f"{what} with fewer than {rare} rows ({together}, too few for {OTHER}) {verb} left out "
            "of this attribute"
        )
        return np.array([None if name in few else name for name in names], dtype=object), others
    notes.append(f"{what} with fewer than {rare} rows ({together}) {verb} merged into {OTHER}")
    result = np.array([OTHER if name in few else name for name in names], dtype=object)
    return result, [*others, OTHER]


def merge_rare_classes(values: Values, least: int) -> tuple[Values, str]:
    """The column with classes on fewer than `least` rows as `(other)`, and what was done.

    Also a single one, and where even together they are on too few rows they are left out (None).
    Numbers with many values, which are cut into bins later, and lists stay as they are.

    >>> column = np.array(["f"] * 30 + ["m"] * 30 + ["?"], dtype=object)
    >>> merge_rare_classes(column, 20)[0][-1] is None
    True
    """
    if least < 2:
        raise DataError(
            f"{name_field('merge_rare')} is {least}; give the fewest rows of a class, 2 or more"
        )
    present = [value for value in values if value is not None]
    is_number = bool(present) and all(map(_is_number, present))
    if any(isinstance(value, list | tuple | dict) for value in present):
        return values, ""
    counts = Counter(present)
    few = {value for value, count in counts.items() if count < least}
    # A column of rare values alone is no attribute, and is refused as one.
    if (is_number and len(counts) > MANY_VALUES) or not few or len(few) == len(counts):
        return values, ""
    notes: list[str] = []
    # Numbers stay numbers where they can: (other) makes classes of them anyway.
    result, _ = _merge(values, [], few, max(least, RARE), notes)
    return result, notes[0]


def _check(name: str, names: Values, classes: list[str], rare: int) -> None:
    # Counted after merging: what is left rare cannot be merged with anything.
    counts = Counter(value for value in names if value is not None)
    if len(classes) < 2:
        raise messages.one_class(name, len(classes))
    # Refused, not dropped: a score on a handful of rows would be luck with a name.
    few = [counts[value] for value in classes if counts[value] < rare]
    if few:
        raise messages.rare_classes(name, few, len(classes), rare)


# ---------------------------------------------------------------------------------------------
# Presence attributes: secrets that the texts themselves carry (DPNR's names, patterns, word lists)

# Presence is asked for, not the value: a loose pattern costs a wrong label, never a leak.
_PATTERNS = {
    # One character on either side is enough for presence; a run of them would be searched from
    # each of its letters anew, which is quadratic in a long word.
    "email": re.compile(r"[\w.+-]@[\w-]+\.[\w.-]"),
    "phone": re.compile(r"(?<!\w)\+?\(?\d[\d\s().-]{6,}\d(?!\w)"),
    "number": re.compile(r"\d"),
}
# At least two capitalised words after another word: a single one may only begin a sentence.
_NAME = re.compile(r"\b(\w+),?\s([A-Z][a-z]+(?:\s(?:[A-Z]\.\s)?[A-Z][a-z]+)+)\b")
_BEFORE_PLACES = frozenset(
    ["the", "a", "an", "in", "at", "from", "to", "near", "of", "into", "across", "for", "this"]
)


def makes_task(kind: str) -> bool:
    """Whether this kind of `--derive` gives the task, not a secret."""
    return kind.partition(":")[0] == "topics"


def add_derived(corpus: Corpus, kinds: Sequence[str]) -> Corpus:
    """The corpus with what its texts tell: presence attributes as secrets, topics as the task.

    `topics`, or `topics:20` for twenty of them, takes the place of a label that is there already.
    """
    task_kinds = [kind for kind in kinds if makes_task(kind)]
    result = corpus.with_private(derive(corpus, [kind for kind in kinds if kind not in task_kinds]))
    if not task_kinds or corpus.texts is None:
        return result
    argument = task_kinds[-1].partition(":")[2] or str(TOPICS)
    if not argument.isdigit() or int(argument) < 2:
        raise DataError(
            f"{name_field('derive', task_kinds[-1])}: write topics, or topics:20 for twenty of them"
        )
    return replace(result, label_name="topic", label=topics(corpus.texts, int(argument)))


def derive(corpus: Corpus, kinds: Sequence[str]) -> dict[str, Values]:
    """Presence attributes from the texts: does this text hold a name, a pattern, a word of a list?

    Kinds: `names` (the most frequent person names; `names:10` for ten of them), `email`, `phone`,
    `number`, `words:FILE` (one word or phrase a line) and `words:a|b|c` (any of them is present).
    """
    if corpus.texts is None:
        raise DataError(
            f"{name_field('derive')} reads the texts, and this corpus holds only vectors"
        )
    columns: dict[str, Values] = {}
    for kind in kinds:
        word, _, argument = kind.partition(":")
        if word == "names":
            if argument and not argument.isdigit():
                raise DataError(
                    f"{name_field('derive', kind)}: write names, or names:10 for ten of them"
                )
            columns |= _names(corpus.texts, int(argument or NAMES))
        elif word == "words" and argument:
            columns |= _word_list(corpus.texts, argument)
        elif word in _PATTERNS:
            columns[f"has {word}"] = _yes_no(
                bool(_PATTERNS[word].search(text)) for text in corpus.texts
            )
        else:
            raise DataError(
                f"{name_field('derive')} does not know {kind!r}; "
                + did_you_mean(word, ["names", "topics", "words:FILE", "words:a|b|c", *_PATTERNS])
            )
    return columns


def _word_list(texts: Values, argument: str) -> dict[str, Values]:
    path = Path(argument)
    if "|" not in argument and path.suffix and not path.exists():
        raise DataError(f"{name_field('derive', 'words')}: there is no file {argument!r}")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else argument.split("|")
    words = [word.strip() for word in lines if word.strip()]
    if not words:
        raise DataError(f"{name_field('derive', f'words:{argument}')} names no words")
    # Escaped: a word of a list is a word, whatever signs it has.
    pattern = re.compile(r"\b(?:" + "|".join(map(re.escape, words)) + r")\b", re.IGNORECASE)
    title = path.stem if path.is_file() else "/".join(words[:3])
    return {f"mentions {title}": _yes_no(bool(pattern.search(text)) for text in texts)}


def _names(texts: Values, most: int) -> dict[str, Values]:
    """The most frequent names as presence attributes; a name counts once per text."""
    people = _people_by_spacy(texts) or _people_by_rule(texts)
    # In order of spelling: of equally frequent names the same ones must be taken in every run.
    counts = Counter(name for names in people for name in sorted(names))
    enough = [name for name, count in counts.most_common(most) if count >= RARE]
    if not enough:
        best = f"; the most frequent is on {counts.most_common(1)[0][1]}" if counts else ""
        raise DataError(
            f"{name_field('derive', 'names')} found no person name on at least {RARE} of "
            f"{len(texts)} texts{best}; give a list of your own with words:FILE"
        )
    return {f"names {name}": _yes_no(name in names for names in people) for name in enough}


def _people_by_spacy(texts: Values) -> list[set[str]] | None:
    """Last names of the persons that an installed spaCy model finds, or None without a model."""
    try:
        import spacy
        from spacy.util import get_installed_models
    except ImportError:
        return None
    models = [name for name in get_installed_models() if name.startswith("en_")]
    if not models:
        return None
    keep = spacy.load(models[0], exclude=["lemmatizer", "parser"])
    return [
        {entity.text.split()[-1] for entity in document.ents if entity.label_ == "PERSON"}
        for document in keep.pipe(map(str, texts), batch_size=256)
    ]


def _people_by_rule(texts: Values) -> list[set[str]]:
    """Capitalised sequences away from sentence starts ('George W. Bush'); the last word counts.

    A rule without a model cannot know people from places. It leaves out last words that are also
    common nouns (often in lower case), and those whose sequences mostly stand after an article or a
    preposition of place ('the United States', 'in New York'), as names of persons seldom do.
    """
    lower = Counter(word for text in texts for word in re.findall(r"\b[a-z]{2,}\b", text))
    upper = Counter(word for text in texts for word in re.findall(r"\b[A-Z][a-z]+\b", text))
    mentions: Counter[str] = Counter()
    after_places: Counter[str] = Counter()
    for text in texts:
        for before, sequence in _NAME.findall(text):
            last = sequence.split()[-1]
            mentions[last] += 1
            after_places[last] += before.lower() in _BEFORE_PLACES
    people = {
        name
        for name, count in mentions.items()
        if lower[name.lower()] < 0.1 * upper[name]
        and after_places[name] < 0.25 * count
        and count > 0.2 * upper[name]
    }
    # Having found who is a name, a bare mention of it is a mention too.
    return [people & set(re.findall(r"\b[A-Z][a-z]+\b", text)) for text in texts]


def topics(texts: Values, count: int = TOPICS, share: float = 0.5, seed: int = 0) -> Values:
    """The topic of each text by latent Dirichlet allocation; None where no topic has `share` of it.

    A task label for texts that have none, as DPNR makes it. The rule: words of three letters or
    more that at least 20 texts and at most a twentieth of them use, without English stop words, the
    5,000 commonest; online variational Bayes; a text belongs to its strongest topic if that has at
    least `share` of it. A topic is named by its three strongest words. The twentieth matters: with
    words that a fifth of the texts use, one topic of small talk takes more than half of a corpus of
    diaries. Nothing but the texts is looked at, and the same seed gives the same topics.
    """
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer

    # Counts, not TF-IDF: the model is one of counts of words.
    words = CountVectorizer(
        min_df=min(20, max(2, len(texts) // 100)),
        max_df=0.05,
        stop_words="english",
        max_features=5000,
        tokenizer=long_words,
        lowercase=False,
        token_pattern=None,
    )
    try:
        counts = words.fit_transform(texts)
    except ValueError:
        raise DataError(
            f"{len(texts)} texts share too few words for topics; give more texts, or a label"
        ) from None
    model = LatentDirichletAllocation(
        count, learning_method="online", batch_size=512, random_state=seed
    )
    shares = model.fit_transform(counts)
    names = words.get_feature_names_out()
    titles = [" ".join(names[row.argsort()[::-1][:3]]) for row in model.components_]
    best = shares.argmax(axis=1)
    # A text of mixed topics has no label, rather than a wrong one.
    sure = shares[np.arange(len(best)), best] >= share
    values = [titles[topic] if clear else None for topic, clear in zip(best, sure, strict=True)]
    return np.array(values, dtype=object)
