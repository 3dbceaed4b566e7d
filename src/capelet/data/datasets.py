"""Named data sets: `load("reviews")` is made here and works offline; the others are found on disk.

A set is looked for as `NAME.parquet` in the folder that `CAPELET_DATA` names, then in `datasets/`
of the user's cache. None is shipped: each entry says where it comes from and under which terms.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from capelet.data.corpus import Corpus, as_values
from capelet.data.readers import read
from capelet.errors import DataError, did_you_mean, name_field
from capelet.files import cache_folder, expand_user


@dataclass(frozen=True)
class Dataset:
    """Where a set comes from, on what terms, and which of its columns mean what."""

    title: str
    source: str
    licence: str
    citation: str
    label: str | None = None
    private: tuple[str, ...] = ()
    author: str | None = None


# The sets of sentence tasks all come under the same words.
_UTILITY_LICENCE = "research use, as its authors ask"

DATASETS: dict[str, Dataset] = {
    "reviews": Dataset(
        "invented product reviews with known optimum",
        "made by capelet.data.reviews",
        "Apache-2.0",
        "Capelet, docs/cards/reviews.md",
        label="stars",
        private=("gender", "age_group", "country"),
        author="author",
    ),
    "blog": Dataset(
        "English blog posts by adult writers",
        "the Blog Authorship Corpus",
        "non-commercial research only",
        "Schler, Koppel, Argamon, Pennebaker (2006): Effects of Age and Gender on Blogging",
        label="label",
        private=("gender", "age_group"),
        author="author",
    ),
    "blog_authors": Dataset(
        "blog posts by 101 prolific writers",
        "the Blog Authorship Corpus",
        "non-commercial research only",
        "Schler, Koppel, Argamon, Pennebaker (2006): Effects of Age and Gender on Blogging",
        private=("gender", "age_group"),
        author="author",
    ),
    "trustpilot": Dataset(
        "company reviews in four languages",
        "the Trustpilot corpus",
        "research use",
        "Hovy, Johannsen, Søgaard (2015): User Review Sites as a Resource for Large-Scale "
        "Sociolinguistic Studies",
        private=("gender", "age_group"),
    ),
    "stance": Dataset(
        "Spanish and Catalan tweets on independence",
        "the IberEval 2017 StanceCat task",
        "research use",
        "Taulé et al. (2017): Overview of the Task on Stance and Gender Detection in Tweets on "
        "Catalan Independence",
        label="label",
        private=("gender", "language"),
    ),
    "norec_gender": Dataset(
        "Norwegian book reviews by named critics",
        "the NoReC_gender corpus",
        "CC BY-NC 4.0, research only",
        "Touileb, Øvrelid, Velldal (2020): Gender and Sentiment, Critics and Authors",
        label="label",
        private=("gender",),
        author="author",
    ),
    "politices": Dataset(
        "tweets of Spanish politicians and journalists",
        "the PoliticES 2022 task",
        "research use",
        "García-Díaz et al. (2022): Overview of PoliticES 2022",
        label="label",
        private=("gender", "profession"),
        author="author",
    ),
    "ag_entities": Dataset(
        "news with the persons they name",
        "the AG news corpus",
        "non-commercial use",
        "Zhang, Zhao, LeCun (2015), with entities as in Lyu, He, Li (2020)",
        label="label",
        private=("entity_0", "entity_1", "entity_2", "entity_3", "entity_4"),
    ),
    "sst2": Dataset(
        "film review sentiment",
        "the Stanford Sentiment Treebank",
        _UTILITY_LICENCE,
        "Socher et al. (2013): Recursive Deep Models for Semantic Compositionality",
        label="label",
    ),
    "trec": Dataset(
        "question types",
        "the TREC question classification set",
        _UTILITY_LICENCE,
        "Li, Roth (2002): Learning Question Classifiers",
        label="label",
    ),
    "subj": Dataset(
        "subjective and objective sentences",
        "the movie review subjectivity set v1.0",
        _UTILITY_LICENCE,
        "Pang, Lee (2004): A Sentimental Education",
        label="label",
    ),
    "mpqa": Dataset(
        "opinion polarity of phrases",
        "the MPQA opinion corpus",
        _UTILITY_LICENCE,
        "Wiebe, Wilson, Cardie (2005): Annotating Expressions of Opinions and Emotions in Language",
        label="label",
    ),
    "mr": Dataset(
        "film review sentences",
        "the movie review polarity set v1.0",
        _UTILITY_LICENCE,
        "Pang, Lee (2005): Seeing Stars",
        label="label",
    ),
    "cr": Dataset(
        "customer reviews of products",
        "the customer review data",
        _UTILITY_LICENCE,
        "Hu, Liu (2004): Mining and Summarizing Customer Reviews",
        label="label",
    ),
    "mrpc": Dataset(
        "paraphrase pairs, first sentences (a label belongs to a pair)",
        "the Microsoft Research Paraphrase Corpus",
        _UTILITY_LICENCE,
        "Dolan, Brockett (2005): Automatically Constructing a Corpus of Sentential Paraphrases",
    ),
    "stsb": Dataset(
        "graded sentence pairs, first sentences (a label belongs to a pair)",
        "the STS benchmark",
        _UTILITY_LICENCE,
        "Cer et al. (2017): SemEval-2017 Task 1",
    ),
    "wikitext_sentences": Dataset(
        "sentences of Wikipedia articles",
        "the WikiText corpus",
        "CC BY-SA",
        "Merity, Xiong, Bradbury, Socher (2016): Pointer Sentinel Mixture Models",
    ),
}


def load(name: str, *, where: str | None = None, official: str | None = None) -> Corpus:
    """The set of that name as a Corpus; `where` keeps some of its rows.

    `official` is its column of train, dev and test, for a split by them.

    >>> corpus = load("reviews")
    >>> corpus.label_name, list(corpus.private)
    ('stars', ['gender', 'age_group', 'country'])
    """
    if name not in DATASETS:
        raise DataError(f"there is no data set {name!r}; {did_you_mean(name, DATASETS)}")
    if name == "reviews":
        if where is not None:
            raise DataError(
                f"the embedded sample is used whole; {name_field('where')} works on files"
            )
        if official is not None:
            raise DataError(
                "the embedded sample has no official parts; a split by a column works on files"
            )
        return _reviews()
    about = DATASETS[name]
    return read(
        path(name),
        text="text",
        label=about.label,
        private=about.private,
        author=about.author,
        official=official,
        where=where,
    )


def path(name: str) -> Path:
    """The file of a named set, or one sentence about where it comes from and where to put it."""
    # CAPELET_DATA first: whoever sets it means it.
    folders = [cache_folder() / "datasets"]
    if os.environ.get("CAPELET_DATA"):
        folders.insert(0, expand_user(os.environ["CAPELET_DATA"]))
    for folder in folders:
        if (folder / f"{name}.parquet").is_file():
            return folder / f"{name}.parquet"
    raise DataError(
        f"the data set {name!r} is not here: get {DATASETS[name].source} "
        f"({DATASETS[name].licence}), and put it as {name}.parquet into the folder that "
        f"CAPELET_DATA names or into {str(folders[-1])!r}"
    )


def is_available(name: str) -> bool:
    """Whether `load` would find the set."""
    try:
        return name == "reviews" or path(name).is_file()
    except DataError:
        return False


def _reviews() -> Corpus:
    from capelet.data.reviews import generate

    reviews, about = generate(), DATASETS["reviews"]
    columns = {name: as_values(values, name) for name, values in vars(reviews).items()}
    return Corpus(
        name="reviews",
        texts=columns["texts"],
        label_name=about.label,
        label=columns["stars"],
        private={name: columns[name] for name in about.private},
        author=columns["author"],
    )
