"""How the numbers were made and what they cannot say, in words that fit this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capelet.findings import Findings
from capelet.reports.verdicts import LEAK, targets
from capelet.reports.words import SPLITS, count, duration, listed, percent

OTHER_ATTACKS = {
    "inversion": "reading words back from a vector (inversion)",
    "membership": "telling whether a text was among the training texts (membership)",
    "authorship": "recognising the author (authorship)",
}


@dataclass(frozen=True)
class Passage:
    """A heading and a paragraph under it."""

    title: str
    text: str


def access(findings: Findings) -> list[Passage]:
    """What the attacker was allowed to see, to own and to spend."""
    sizes = _part(findings.provenance, "split").get("sizes") or {}
    own = f"{count(sizes['attacker'])} texts" if "attacker" in sizes else "Texts"
    seconds = _part(findings.provenance, "seconds").get("attacks")
    passages = [
        Passage("Sees", "The released vectors only: no victim’s text, no weights, no gradients."),
        Passage(
            "Owns",
            f"{own} of its own with known attributes, turned into vectors by the same release. "
            "Whoever may call the encoder, or knows some of the writers, has these.",
        ),
    ]
    if seconds is not None:
        passages.append(
            Passage(
                "Spends",
                f"{duration(seconds)} of computing for all attackers, attributes and seeds "
                "of this report together.",
            )
        )
    return passages


def method(findings: Findings) -> list[Passage]:
    """How it was measured."""
    return [
        Passage("Three parts that never meet", _split(findings)),
        Passage(
            "Fresh attackers",
            f"On the attacker’s part, and on nothing else, {_families(findings)} learn to name "
            "the attribute from a vector. Each is tuned on a held-back tenth of that part. The "
            "strongest is their committee (the mean of their probabilities), or a single family "
            "that beats the committee there by more than a standard error. It never sees a victim "
            "before it is scored.",
        ),
        Passage(
            "The score",
            "Balanced accuracy is the mean, over the classes, of the share that is named "
            "rightly. Guessing reaches one over the number of classes, however uneven they are. "
            f"Intervals are 95 % bootstrap intervals over victims{_by_author(findings)}; "
            "values are means over seeds.",
        ),
        Passage(
            "Controls beside every score",
            "Shuffled labels: the same attack on meaningless labels must end at chance. Predicted "
            "task label: what the answer to the task alone gives away, about the least that a "
            "useful release leaks. The text itself: what an attacker reads from the words "
            "(TF-IDF), about the most. Ceiling: what the guarantee, if there is one, permits to "
            "anyone.",
        ),
        Passage(
            "Levels",
            "“No leak found”: the interval reaches down to chance, or all guesses were the same. "
            "“Slight”: a gain under 5 points. "
            "“Clear”: under 15 points. “Strong”: 15 points or more.",
        ),
    ]


def limits(findings: Findings) -> list[Passage]:
    """What the report cannot say."""
    passages = [
        Passage(
            "“No leak found” is not “no leak”",
            "An interval above chance, with the shuffled control at chance, shows that the vectors "
            "carry the attribute. A score at chance only says that these attackers, with these "
            "labels and this many victims, did not find it. More data, another attacker or several "
            "texts of one person may.",
        ),
        Passage(
            "Only what was asked",
            f"{_asked(findings)} Other attributes, and combinations of them, may leak as well.",
        ),
        Passage("The guarantee", _guarantee(findings)),
        Passage(
            "What is public",
            "The encoder, the recipe and this report are taken to be known to the attacker. How "
            "many texts are released, and in which order, is public too.",
        ),
    ]
    duplicates = _part(findings.provenance, "data").get("duplicates") or {}
    near = duplicates.get("victims_near_attacker")
    if near:
        passages.append(
            Passage(
                "Repeated texts",
                f"{percent(near, 1)} of the victims’ texts are near copies of a text that the "
                "attacker owns. An attacker can look those up instead of inferring them.",
            )
        )
    return passages


def _split(findings: Findings) -> str:
    split = _part(findings.provenance, "split")
    shares = split.get("shares") or {}
    sizes = split.get("sizes") or {}
    parts = [
        f"{name} {percent(share)}" + (f" ({count(sizes[name])} texts)" if name in sizes else "")
        for name, share in shares.items()
    ]
    said = f"The texts are split into {listed(parts)}" if parts else "The texts are split in three"
    kind = split.get("kind")
    said += f", {SPLITS.get(str(kind), str(kind))}. " if kind else ". "
    seeds = split.get("seeds") or []
    if len(seeds) > 1:
        said += f"Each of the {len(seeds)} seeds splits anew. "
    return said + (
        "Identical texts stay together. Defences and task probes learn from the defender, "
        "attackers from the attacker, and every score is taken on the victims."
    )


def _by_author(findings: Findings) -> str:
    return ", drawn by author" if _part(findings.provenance, "data").get("authors") else ""


def _families(findings: Findings) -> str:
    names = {row.attacker for row in findings if row.kind == LEAK} - {
        "strongest",
        "committee",
        None,
    }
    return f"{len(names)} families of attackers" if len(names) > 1 else "attackers"


def _asked(findings: Findings) -> str:
    asked = targets(findings, LEAK)
    done = {row.kind for row in findings}
    missing = [said for kind, said in OTHER_ATTACKS.items() if kind not in done]
    said = f"Measured: inference of {listed(asked)}." if asked else "No attribute was measured."
    return f"{said} Not measured: {'; '.join(missing)}." if missing else said


def _guarantee(findings: Findings) -> str:
    promised = _part(findings.provenance, "guarantee")
    sentence = str(promised.get("sentence") or "no guarantee is stated").strip().rstrip(".")
    said = f"{sentence[0].upper()}{sentence[1:]}." if sentence else "No guarantee is stated."
    if promised.get("notion", "none") == "none" or promised.get("status") == "none":
        return f"{said} What is measured here is all that is known about the leak."
    return (
        f"{said} It covers the text that passes through, not the texts that a defence was "
        "trained on, and several releases about one person add up."
    )


def _part(provenance: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = provenance.get(name)
    return part if isinstance(part, Mapping) else {}
