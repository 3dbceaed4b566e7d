"""Kinds of finding and measures, one record each: what a report must know to read a number.

A kind says what was attempted, by which measure it is judged, what needs no vectors at all, and
what its control is. `findings.json` appends `-null` to a kind for its control and `-reference` for
its references; only `split_kind` takes these apart. A kind that has a record and nothing else gets
a section, a table and a comparison with the right direction in every report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from capelet.findings.metrics import METRICS, Measure

Role = Literal["score", "control", "reference"]
Sense = Literal["leak", "use", "neither"]
Base = Literal["chance", "majority"]

# Part of the schema: whoever reads findings knows these suffixes.
CONTROL_SUFFIX, REFERENCE_SUFFIX = "-null", "-reference"


# What is not computed from guesses of a class; those metrics bring their measure themselves.
MEASURES: dict[str, Measure] = {
    "tpr_at_01_fpr": Measure("found at 0.1 % false alarms"),
    "certain_share": Measure("read with near certainty"),
    "certain_hit_rate": Measure("right among those read with near certainty"),
    "recall_at_10": Measure("ten nearest neighbours kept"),
    "accuracy_gap": Measure("largest gap in accuracy", "points", "falls"),
    "euclidean": Measure("Euclidean distance", "number", None),
    "cosine_distance": Measure("cosine distance", "number", None),
    "separability": Measure("told apart", "share", None),
    "map_purity": Measure("neighbours of the same kind on a map", "share", None),
    "f1": Measure("F1"),
    "precision": Measure("precision"),
    "recall": Measure("recall"),
    "bleu": Measure("BLEU", "number"),
    "exact_match": Measure("all words in their order"),
    "top1": Measure("writer named first"),
    "top5": Measure("writer among the first five"),
    "advantage": Measure("advantage", "points"),
    "exposure_bits": Measure("exposure, bits", "number", digits=1),
    "word_accuracy": Measure("words given back"),
    "perplexity": Measure("perplexity", "number", "falls", digits=1),
    "perplexity_ratio": Measure("times the baseline's perplexity", "number", "falls", digits=2),
}

# How a metric without a record is printed follows from what its name contains.
_SHARES = ("accuracy", "f1", "tpr", "recall", "precision", "top", "exact_match", "rate")


def measure_of(metric: str) -> Measure:
    """The record of a metric; one that nobody described yet is read off its name."""
    if metric in METRICS:
        return METRICS[metric].measure
    if metric in MEASURES:
        return MEASURES[metric]
    title = metric.replace("_", " ")
    if metric.endswith("_gap"):
        return Measure(title, "points", "falls")
    # A share for what sounds like one: a later version's metric should still be printed sensibly.
    return Measure(title, "share" if any(part in metric for part in _SHARES) else "number")


@dataclass(frozen=True)
class Kind:
    """What one kind of finding measures, and how it is to be read.

    `sense`: of a `leak` less is better, of a `use` more is, unless the measure counts errors.
    `base` is the field of a finding that needs no vectors at all, and `base_title` says what it is.
    `subject` is what is got at, in a word; `attack` names it in the list of what was not measured.
    """

    name: str
    title: str
    metric: str
    sense: Sense
    summary: str
    subject: str = ""
    base: Base = "chance"
    base_title: str = "by chance"
    control: str = "shuffled labels"
    heading: str = ""
    caption: tuple[str, str] = ("", "")
    comparison: str = ""
    attack: str = ""


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "attribute-inference",
            "Attribute inference",
            "balanced_accuracy",
            "leak",
            "an attacker on a private attribute",
            subject="attribute",
            heading="How much leaks",
            caption=(
                "The strongest attacker, per attribute.",
                "Balanced accuracy on the victims. A bar begins at chance, so its length is the "
                "attacker’s gain.",
            ),
            comparison="Leakage: strongest attacker, balanced accuracy",
        ),
        Kind(
            "person-inference",
            "Attributes of people",
            "balanced_accuracy",
            "leak",
            "an attacker on a private attribute of a person, by many of their texts",
            subject="person",
            control="labels permuted over people",
            heading="How much the texts of a person give away together",
            caption=(
                "The pooled attack, by number of texts.",
                "Balanced accuracy on people: the attacker holds so many texts of each, and knows "
                "that they are of one person. A bar begins at chance.",
            ),
            comparison="People: pooled attack, balanced accuracy",
        ),
        Kind(
            "inversion",
            "Inversion: words read back from vectors",
            "f1",
            "leak",
            "words read back from vectors",
            subject="words",
            base="majority",
            base_title="by naming the most frequent words",
            control="paired with another text",
            heading="Can the words be read back?",
            caption=(
                "F1 of the words read back.",
                "A bar begins at what naming the same most frequent words of every text reaches, "
                "so its length is what the vectors give away.",
            ),
            comparison="Words read back: F1",
            attack="reading words back from a vector (inversion)",
        ),
        Kind(
            "authorship",
            "Authorship",
            "top5",
            "leak",
            "the writer named from few texts of each",
            subject="writer",
            heading="Can the writer be told?",
            caption=(
                "Texts whose writer is found.",
                "A bar begins at chance. Where the vectors beat the text itself, the encoder "
                "brought knowledge that helps to tell writers apart.",
            ),
            comparison="Writers: among the first five guesses",
            attack="recognising the author (authorship)",
        ),
        Kind(
            "membership",
            "Membership",
            "advantage",
            "leak",
            "whether a text was trained on",
            subject="training texts",
            control="membership permuted",
            heading="Can training texts be told from others?",
            caption=(
                "Advantage of the attacker.",
                "True minus false positives: 0 % is guessing, 100 % is to know. Thresholds were "
                "chosen on other texts.",
            ),
            comparison="Training texts: advantage",
            attack="telling whether a text was among the training texts (membership)",
        ),
        Kind(
            "extraction",
            "Extraction from language models",
            "exposure_bits",
            "leak",
            "what a language model gives back of its training texts",
            subject="made-up secrets",
            control="never inserted",
            heading="Exposure",
            caption=(
                "How well made-up secrets are remembered.",
                "Bits of exposure over the number of times that one author repeated a secret of "
                "five random words; vertical strokes are 95 % intervals. A secret that was never "
                "inserted lies at the dashed line.",
            ),
            comparison="Exposure of canaries, bits",
        ),
        Kind(
            "utility",
            "Utility",
            "accuracy",
            "use",
            "how well the task still works",
            subject="task",
            base="majority",
            base_title="for always naming the commonest class",
            heading="Does the task still work?",
            caption=(
                "The task.",
                "A bar begins at what needs no vectors at all, so its length is what they are good "
                "for.",
            ),
            comparison="Utility",
        ),
        Kind(
            "fairness",
            "Fairness",
            "accuracy_gap",
            "use",
            "for whom the task works",
            subject="attribute",
            heading="For whom it works",
            caption=(
                "For whom it works.",
                "Accuracy of the same probe in each group, with its 95 % interval.",
            ),
            comparison="Fairness: largest gap in accuracy",
        ),
        Kind(
            "deviation",
            "Deviation of the vectors",
            "separability",
            "neither",
            "how far released vectors lie from the encoder's own",
            subject="vectors",
            control="shuffled names",
            heading="Original and released vectors",
            comparison="Deviation of the vectors",
        ),
    )
}


def split_kind(kind: str) -> tuple[str, Role]:
    """The kind's name and the role of the row: a score, its control, or a reference.

    >>> split_kind("inversion-null"), split_kind("utility")
    (('inversion', 'control'), ('utility', 'score'))
    """
    if kind.endswith(CONTROL_SUFFIX):
        return kind.removesuffix(CONTROL_SUFFIX), "control"
    if kind.endswith(REFERENCE_SUFFIX):
        return kind.removesuffix(REFERENCE_SUFFIX), "reference"
    return kind, "score"


def control_of(name: str) -> str:
    """The kind under which the control of a kind is written."""
    return name + CONTROL_SUFFIX


def reference_of(name: str) -> str:
    """The kind under which the references of a kind are written."""
    return name + REFERENCE_SUFFIX


def kind_of(kind: str) -> Kind:
    """The record of a kind, of its control or of its reference.

    A kind that a later version wrote has a title and no direction: its numbers can be shown, and
    nobody here can say whether more of them is better.
    """
    name, _ = split_kind(kind)
    return KINDS.get(name) or Kind(
        name, name.replace("-", " ").capitalize(), "", "neither", "", subject=name
    )


def better(kind: str, metric: str) -> Literal["less", "more"] | None:
    """Whether less or more of a metric is better in this kind; None where neither is.

    >>> better("attribute-inference", "accuracy"), better("utility", "accuracy")
    ('less', 'more')
    >>> better("utility", "perplexity"), better("extraction", "exposure_bits")
    ('less', 'less')
    """
    sense, success = kind_of(kind).sense, measure_of(metric).success
    if sense == "neither" or success is None:
        return None
    # A leak that rises is worse, a use that rises is better; measures of errors turn both round.
    return "less" if (sense == "leak") == (success == "rises") else "more"
