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
    size = sizes.get("attacker", sizes.get("auxiliary"))
    own = f"{count(size)} texts" if size is not None else "Texts"
    seconds = _part(findings.provenance, "seconds")
    spent = [seconds[name] for name in ("attacks", *OTHER_ATTACKS) if name in seconds]
    passages = [Passage("Sees", _sees(findings)), Passage("Owns", _owns(findings, own))]
    if spent:
        passages.append(
            Passage(
                "Spends",
                f"{duration(sum(spent))} of computing for all attackers"
                f"{', attributes' if targets(findings, LEAK) else ''} and seeds "
                "of this report together.",
            )
        )
    return passages


def _sees(findings: Findings) -> str:
    open_box = any(
        row.parameters.get("access") == "white-box" for row in findings.select(kind="inversion")
    )
    if open_box:
        return (
            "The released vectors, and for the attacks marked white-box also the encoder’s own "
            "weights or token table; no victim’s text."
        )
    return "The released vectors only: no victim’s text, no weights, no gradients."


def _owns(findings: Findings, own: str) -> str:
    kinds = {row.kind for row in findings}
    if LEAK in kinds:
        return (
            f"{own} of its own with known attributes, turned into vectors by the same release. "
            "Whoever may call the encoder, or knows some of the writers, has these."
        )
    if kinds & {"inversion", "authorship"}:
        return (
            f"{own} of its own, turned into vectors by the same release. Whoever may call the "
            "encoder has these."
        )
    return (
        "The model, and a third of the texts with the knowledge whether the model was trained on "
        "them: the thresholds are chosen there."
    )


def method(findings: Findings) -> list[Passage]:
    """How it was measured."""
    kinds = {row.kind for row in findings}
    split = _part(findings.provenance, "split")
    two = not split.get("shares") and bool(split.get("sizes"))
    passages = [
        Passage("Two parts that never meet", _two(findings))
        if two
        else Passage("Three parts that never meet", _split(findings))
    ]
    if LEAK in kinds or not kinds & set(OTHER_ATTACKS):
        passages += _of_attributes(findings)
    passages += [passage for kind, passage in _OF_OTHERS.items() if kind in kinds]
    return [
        *passages,
        Passage(
            "Levels",
            "“No leak found”: the interval reaches down to chance, or all guesses were the same. "
            "“Slight”: a gain under 5 points. "
            "“Clear”: under 15 points. “Strong”: 15 points or more."
            + (
                " For words, writers and training texts the interval must also lie above that of "
                "the control."
                if kinds & set(OTHER_ATTACKS)
                else ""
            ),
        ),
    ]


_OF_OTHERS = {
    "inversion": Passage(
        "Words",
        "Attackers learn from the vectors of their own texts to name the set of words of a text. "
        "Scored is the F1 of that set, the mean over victims: order, repetition and punctuation "
        "do not count, words that the attacker never met count against it. Beside it: naming the "
        "same most frequent words of every text, as many as pay best on the attacker’s texts; and "
        "each guess paired with another victim. A noised release is attacked with vectors of the "
        "same noise.",
    ),
    "authorship": Passage(
        "Writers",
        "The attacker knows a few texts of each writer, fits a linear probe on their vectors, and "
        "names the writer of other texts. Each seed draws its own writers and texts; intervals "
        "are over writers. Beside it: chance, the same attack on shuffled labels, and a network "
        "(TextCNN) that reads the texts themselves.",
    ),
    "membership": Passage(
        "Training texts",
        "What stood in one context in training is more alike afterwards. The similarity of words "
        "in a window, or of neighbouring sentences, is compared with a threshold. It is chosen on "
        "other texts; intervals are over texts or writers; the control deals membership out anew. "
        "Words are matched in frequency between members and others.",
    ),
}


def _of_attributes(findings: Findings) -> list[Passage]:
    return [
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


def _two(findings: Findings) -> str:
    split = _part(findings.provenance, "split")
    parts = [f"{name} ({count(size)})" for name, size in (split.get("sizes") or {}).items()]
    kind = SPLITS.get(str(split.get("kind")), str(split.get("kind")))
    return (
        f"What is attacked is split into {listed(parts)}, {kind}. Attackers learn, tune and choose "
        "thresholds on the auxiliary part only; every score is taken on the other."
    )


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
    tried = [said for kind, said in OTHER_ATTACKS.items() if kind in done]
    if tried:
        said += f" {'Also m' if asked else 'M'}easured: {'; '.join(tried)}."
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
