"""The audit: what does a release give away, and what is it good for?

The corpus is split into defender, attacker and victims, once for each seed; `evaluation` measures
leakage, utility, fairness and geometry; what comes out are findings and artefacts for a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capelet.attacks.attribute import families, one_thread
from capelet.corpus import Corpus
from capelet.encoders import cached
from capelet.errors import DataError
from capelet.evaluation.geometry import deviation, separability, tsne, tsne_shift
from capelet.evaluation.leakage import attack_all, findings_of, learning_curve
from capelet.evaluation.plan import Plan
from capelet.evaluation.provenance import Clock, provenance
from capelet.evaluation.utility import neighbours
from capelet.findings import Findings
from capelet.interfaces import Encoder, Progress, silent
from capelet.release import PrivateEncoder

DEFAULT_ENCODER = "minilm"


def audit(
    corpus: Corpus,
    private: PrivateEncoder | Encoder | str | None = None,
    *,
    seeds: int = 5,
    split_kind: str = "auto",
    attackers: Sequence[str] = (),
    derived: Sequence[str] = (),
    bins: Mapping[str, Sequence[float]] | None = None,
    cache: bool = True,
    progress: Progress = silent,
) -> Findings:
    """Measure what a release of this corpus leaks and what it is worth.

    Example: `audit(capelet.load("reviews"), "minilm")`. Without `private`, ready vectors are
    audited as they are, and texts through the default encoder.
    """
    clock = Clock()
    tried = families(attackers)
    plan = Plan.of(corpus, seeds, split_kind, derived, bins)
    encoder = _private_encoder(corpus, private, cache)
    inputs = _inputs(corpus, encoder)
    with clock("encoding"):
        release = encoder.release(inputs, progress)
    with clock("attacks"):
        tally = attack_all(plan, release.vectors, tried, progress)
    with clock("scores"), one_thread():
        rows = findings_of(plan, release, tally)
        if encoder.protects:
            original = encoder.unprotected().release(inputs, progress)
            rows.append(neighbours(original, release, plan.splits))
            pair = original.vectors, release.vectors
            rows += deviation(*pair, release.recipe_hash)
            rows += separability(plan, *pair, release.recipe_hash)
        victims = plan.splits[0].victims
        shown = [*plan.secrets, *([plan.label] if plan.label else [])]
        artefacts = {
            "learning_curve": learning_curve(plan, tally),
            "tsne": tsne(release.vectors, victims, shown, seed=0),
        }
        if encoder.protects and (moved := tsne_shift(*pair, victims, seed=0)) is not None:
            artefacts["tsne_shift"] = moved
    origin = provenance(plan, encoder, release, clock)
    return Findings(tuple(rows), origin, release.recipe, artefacts)


def _private_encoder(
    corpus: Corpus, private: PrivateEncoder | Encoder | str | None, cache: bool
) -> PrivateEncoder:
    if isinstance(private, PrivateEncoder):
        chosen = private
    elif private is not None:
        chosen = PrivateEncoder(private)
    else:
        chosen = PrivateEncoder() if corpus.vectors is not None else PrivateEncoder(DEFAULT_ENCODER)
    if not cache:
        return chosen
    return PrivateEncoder(
        *[cached(step) if isinstance(step, Encoder) else step for step in chosen.steps]
    )


def _inputs(corpus: Corpus, encoder: PrivateEncoder) -> Any:
    texts = corpus.texts.tolist() if corpus.texts is not None else None
    inputs = texts if encoder.consumes == "texts" else corpus.vectors
    if inputs is None:
        raise DataError(
            f"the encoder consumes {encoder.consumes}, and {corpus.name!r} holds none; "
            "name the column with --text or --vectors"
        )
    return inputs
