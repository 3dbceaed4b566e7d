"""How the numbers were made and what they cannot say, in words that fit this run."""

from __future__ import annotations

from capelet.findings import Findings
from capelet.findings.kinds import KINDS
from capelet.reports.facts import part
from capelet.reports.formatting import (
    count,
    duration,
    join_names,
    percent,
    sentence_of,
    split_words,
)
from capelet.reports.kinds import reports_of
from capelet.reports.kinds.attribute_inference import LEAK
from capelet.reports.kinds.families import TABLE, is_exact
from capelet.reports.page import Passage
from capelet.reports.verdict import targets

OTHER_ATTACKS = {name: kind.attack for name, kind in KINDS.items() if kind.attack}


def access(findings: Findings) -> list[Passage]:
    """What the attacker was allowed to see, to own and to spend."""
    sizes = part(findings, "split").get("sizes") or {}
    # An audit calls the attacker's own texts its part, a single attack calls them auxiliary.
    size = sizes.get("attacker", sizes.get("auxiliary"))
    own = f"{count(size)} texts" if size is not None else "Texts"
    seconds = part(findings, "seconds")
    times = [seconds[name] for name in ("attacks", *OTHER_ATTACKS) if name in seconds]
    passages = [Passage("Sees", _sees(findings)), Passage("Owns", _owns(findings, own))]
    if times:
        passages.append(
            Passage(
                "Spends",
                f"{duration(sum(times))} of computing for all attackers"
                f"{', attributes' if targets(findings, LEAK) else ''} and seeds "
                "of this report together.",
            )
        )
    return passages


def _sees(findings: Findings) -> str:
    # Said only where an attack used it: most readers ask about a thief of vectors.
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
    split = part(findings, "split")
    # Inversion and membership alone have two parts; an audit also has a defender.
    two = not split.get("shares") and bool(split.get("sizes"))
    passages = [
        Passage("Two parts that never meet", _two(findings))
        if two
        else Passage("Three parts that never meet", _split(findings))
    ]
    if LEAK in kinds or not kinds & set(OTHER_ATTACKS):
        passages += _of_attributes(findings)
    methods = [report.method for report in reports_of(findings)]
    passages += [passage for passage in methods if passage is not None]
    return [
        *passages,
        Passage(
            "Levels",
            "“No leak found”: the interval reaches down to chance, is at most 5 points wide to "
            "either side, and ends less than 5 points above chance. “Inconclusive”: it reaches "
            "down to chance and is wider or ends higher, or all guesses of a fitted attacker were "
            "the same. "
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


def _of_attributes(findings: Findings) -> list[Passage]:
    return [
        Passage(
            "Fresh attackers",
            f"On the attacker’s part, and on nothing else, {_families(findings)} learn to name "
            "the attribute from a vector. Settings and families are chosen by five-fold "
            "cross-validation on that part, nobody’s rows in two folds; a committee with "
            "calibrated probabilities is one candidate. The winner is fitted again on all of that "
            "part, and never sees a victim before it is scored. Where the release adds noise, the "
            f"attacker passes its own texts through it as often as that helps.{_exact(findings)}",
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
            "anyone from one text; several texts of one person permit more, and where authors "
            "are known that stands beside it.",
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
            f"{_scope(findings)} Other attributes, and combinations of them, may leak as well.",
        ),
        Passage("The guarantee", _guarantee(findings)),
        Passage(
            "What is public",
            "The encoder, the recipe and this report are taken to be known to the attacker. How "
            "many texts are released, and in which order, is public too.",
        ),
    ]
    duplicates = part(findings, "data").get("duplicates") or {}
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
    split = part(findings, "split")
    parts = [f"{name} ({count(size)})" for name, size in (split.get("sizes") or {}).items()]
    kind = split_words(str(split.get("kind")))
    return (
        f"What is attacked is split into {join_names(parts)}, {kind}. Attackers learn, tune and "
        "choose thresholds on the auxiliary part only; every score is taken on the other."
    )


def _split(findings: Findings) -> str:
    split = part(findings, "split")
    shares = split.get("shares") or {}
    sizes = split.get("sizes") or {}
    parts = [
        f"{name} {percent(share)}" + (f" ({count(sizes[name])} texts)" if name in sizes else "")
        for name, share in shares.items()
    ]
    sentence = "The texts are split " + (f"into {join_names(parts)}" if parts else "in three")
    kind = split.get("kind")
    sentence += f", {split_words(str(kind))}. " if kind else ". "
    seeds = split.get("seeds") or []
    if len(seeds) > 1:
        sentence += f"Each of the {len(seeds)} seeds splits anew. "
    return sentence + (
        "Identical texts stay together. Defences and task probes learn from the defender, "
        "attackers from the attacker, and every score is taken on the victims."
    )


def _by_author(findings: Findings) -> str:
    return ", drawn by author" if part(findings, "data").get("authors") else ""


def _families(findings: Findings) -> str:
    # The committee and the strongest are chosen among the families, and are none.
    names = {row.attacker for row in findings if row.kind == LEAK} - {
        "strongest",
        "committee",
        TABLE,
        None,
    }
    return f"{len(names)} families of attackers" if len(names) > 1 else "attackers"


def _exact(findings: Findings) -> str:
    """Who is strongest where a release takes few values."""
    if not any(is_exact(row) for row in findings.select(kind=LEAK, attacker="strongest")):
        return ""
    return (
        " These vectors take few values: here the strongest is the table of how often each value "
        "comes in each class, counted on the attacker’s part with as many draws as there may be. "
        "What it does not gain, nobody gains from one vector, but for the luck of its counts."
    )


def _scope(findings: Findings) -> str:
    attributes = targets(findings, LEAK)
    kinds = {row.kind for row in findings}
    # What was not tried is named, since silence would read as safety.
    missing = [attack for kind, attack in OTHER_ATTACKS.items() if kind not in kinds]
    others = [attack for kind, attack in OTHER_ATTACKS.items() if kind in kinds]
    names = join_names(attributes)
    sentence = f"Measured: inference of {names}." if attributes else "No attribute was measured."
    if others:
        sentence += f" {'Also m' if attributes else 'M'}easured: {'; '.join(others)}."
    return f"{sentence} Not measured: {'; '.join(missing)}." if missing else sentence


def _guarantee(findings: Findings) -> str:
    promise = part(findings, "guarantee")
    sentence = str(promise.get("sentence") or "no guarantee is stated").strip().rstrip(".")
    sentence = f"{sentence_of(sentence)}." if sentence else "No guarantee is stated."
    # A notion whose status is "none" promises nothing either.
    if promise.get("notion", "none") == "none" or promise.get("status") == "none":
        return f"{sentence} What is measured here is all that is known about the leak."
    return (
        f"{sentence} It covers the text that passes through, not the texts that a defence was "
        "trained on, and several releases about one person add up."
    )
