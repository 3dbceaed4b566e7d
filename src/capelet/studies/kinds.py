"""The kinds of a study: what may vary in each, and the pure function that measures one cell of it.

To add a kind: a function from a cell to its measurement, a record with its keys and its version,
and a line in `KINDS`. The version is raised by hand whenever the function would give other numbers
for the same inputs: stored cells of the old version are then not found, and measured again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from capelet.data.corpus import Corpus
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.findings import Finding
from capelet.interfaces import Encoder, Step
from capelet.studies.cell import Cell, Measurement
from capelet.studies.sources import encoder_of, sample

# Inputs that the driver adds: what the names in the plan stand for on this day.
DIGEST, FINGERPRINT = "digest", "fingerprint"
_CORPUS: dict[str, Any] = {"corpus": None, "rows": None, "seed": 0}
_RELEASE: dict[str, Any] = {"encoder": "minilm", "steps": ()}
_ATTRIBUTES: dict[str, Any] = {
    "split": "auto",
    "attackers": (),
    "derived": (),
    "bins": None,
    "metrics": (),
}


@dataclass(frozen=True)
class Kind:
    """One kind of study: its keys with their defaults, and how a cell of it is measured.

    `check` refuses what no corpus could make right; it runs before anything is read.
    """

    title: str
    version: int
    keys: Mapping[str, Any]
    measure: Callable[[Cell], Measurement]
    check: Callable[[Mapping[str, Any]], None] = field(default=lambda inputs: None)

    def complete(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """All inputs with defaults for what was not given; what is None is left out of the key."""
        for key in values:
            if key not in self.keys:
                hint = did_you_mean(key, self.keys)
                raise CapeletError(f"a study of the kind {name!r} has no {key!r}; {hint}")
        inputs = {**self.keys, **values}
        if inputs.get("corpus") is None:
            raise CapeletError('a plan needs a corpus: under [axes], corpus = ["reviews"]')
        self.check(inputs)
        return {key: value for key, value in inputs.items() if value not in (None, (), [], {})}


def _corpus(cell: Cell, name: str = "corpus") -> Corpus:
    digest = cell.inputs["digests"][name]
    return sample(cell.sources[name], cell.inputs.get("rows"), digest)


def _encoder(cell: Cell) -> Encoder:
    return encoder_of(cell.inputs["encoder"], cell.inputs[FINGERPRINT])


def _steps(cell: Cell) -> list[Step]:
    from capelet.release.steps import steps_of

    entries = [dict(entry) for entry in cell.inputs.get("steps", ())]
    return steps_of({"steps": entries}) if entries else []


# ---- attributes ----------------------------------------------------------------------------------


def _protocol(inputs: Mapping[str, Any]) -> Any:
    from capelet.workflows.cells import Protocol

    return Protocol(
        seed=int(inputs["seed"]),
        split_kind=inputs.get("split", "auto"),
        attackers=tuple(inputs.get("attackers", ())),
        derived=tuple(inputs.get("derived", ())),
        bins=inputs.get("bins"),
        metrics=tuple(inputs.get("metrics", ())),
        members=bool(inputs.get("members", False)),
    )


def _check_attackers(inputs: Mapping[str, Any]) -> None:
    from capelet.attacks.attribute import families

    families(tuple(inputs["attackers"]))
    _check_steps(inputs)


def _check_steps(inputs: Mapping[str, Any]) -> None:
    from capelet.release.steps import steps_of

    if inputs.get("steps"):
        steps_of({"steps": [dict(entry) for entry in inputs["steps"]]})


def _audit(cell: Cell) -> Measurement:
    from capelet.workflows.cells import measure_steps

    corpus = _corpus(cell)
    return Measurement(*measure_steps(corpus, _encoder(cell), _steps(cell), _protocol(cell.inputs)))


# Settings that stand in records of their own, under the names that the command line gives them.
_CHOICES = ("width", "head_units", "dropout", "batch", "rate", "epochs")
_INNER = ("schedule", "training", "heads", "seed", "device")


def _setting_keys() -> dict[str, Any]:
    """Every setting of a method and of its schedule, and the papers' presets."""
    from capelet.defences.settings import Schedule, Settings

    names = [item.name for record in (Settings, Schedule) for item in fields(record)]
    return {name: None for name in (*names, *_CHOICES, "preset") if name not in _INNER}


def _settings(inputs: Mapping[str, Any]) -> Any:
    from capelet.defences.settings import Schedule, Settings, with_choices

    def values_for(record: Any) -> dict[str, Any]:
        names = {item.name for item in fields(record)} - {*_INNER, *_CHOICES}
        return {key: value for key, value in inputs.items() if key in names}

    # The processor always: which device there is must not change a cell's numbers.
    settings = Settings(
        **values_for(Settings), schedule=Schedule(**values_for(Schedule), device="cpu")
    )
    choices = {name: inputs.get(name) for name in _CHOICES}
    return with_choices(settings, inputs.get("preset"), choices)


def _check_method(inputs: Mapping[str, Any]) -> None:
    from capelet.defences.methods import check_mechanism, method

    _check_attackers(inputs)
    if inputs.get("method") is None:
        raise CapeletError("a study of the kind 'protect' needs methods: method = [\"gr\"]")
    record = method(inputs["method"])
    if ("epsilon" in record.needs) != (inputs.get("epsilon") is not None):
        state = "needs an" if "epsilon" in record.needs else "adds no noise and takes no"
        raise CapeletError(f"the method {inputs['method']!r} {state} epsilon; correct the plan")
    settings = _settings({key: value for key, value in inputs.items() if value is not None})
    check_mechanism(inputs["method"], settings)


def _protect(cell: Cell) -> Measurement:
    from capelet.workflows.cells import measure_method

    inputs = cell.inputs
    return Measurement(
        *measure_method(
            _corpus(cell),
            _encoder(cell),
            inputs["method"],
            _settings(inputs),
            _protocol(inputs),
            tuple(inputs.get("hold_out", ())),
        )
    )


def _check_clouds(inputs: Mapping[str, Any]) -> None:
    from capelet.release.steps import steps_of
    from capelet.workflows.cells import ORIGINAL

    if not inputs["clouds"] or ORIGINAL in inputs["clouds"]:
        raise CapeletError(
            "a study of the kind 'geometry' needs clouds, each with its steps and none of them "
            f"named {ORIGINAL!r}: [settings.clouds]"
        )
    for steps in inputs["clouds"].values():
        steps_of({"steps": [dict(entry) for entry in steps]})


def _geometry(cell: Cell) -> Measurement:
    from capelet.release.steps import steps_of
    from capelet.workflows.cells import measure_clouds

    clouds = {
        name: steps_of({"steps": [dict(entry) for entry in steps]})
        for name, steps in cell.inputs["clouds"].items()
    }
    return Measurement(
        measure_clouds(_corpus(cell), _encoder(cell), clouds, _protocol(cell.inputs))
    )


# ---- words, writers, training texts --------------------------------------------------------------


def _private(cell: Cell) -> Any:
    from capelet.release import PrivateEncoder
    from capelet.workflows.cells import with_seeded_noise

    return with_seeded_noise(PrivateEncoder(_encoder(cell), *_steps(cell)), cell.seed)


def _measurement(
    rows: Sequence[Finding], cell: Cell, recipe: Mapping[str, Any] | None = None
) -> Measurement:
    """The findings of an attack that makes its releases itself; it gives no guesses by row."""
    from capelet.workflows.cells import study_findings

    return Measurement(study_findings(rows, cell.seed, recipe))


def _check_inversion(inputs: Mapping[str, Any]) -> None:
    from capelet.attacks.inversion.run import ATTACKS

    _check_steps(inputs)
    for name in inputs["attacks"]:
        if name not in ATTACKS:
            raise CapeletError(f"there is no attack {name!r}; {did_you_mean(name, ATTACKS)}")


def _invert(cell: Cell) -> Measurement:
    """Words of victims' texts; with `auxiliary` the attacker learns on another corpus."""
    from capelet.attacks.inversion.run import Inversion, texts_to_invert

    inputs = cell.inputs
    cut, most = bool(inputs.get("sentences")), inputs.get("most")
    texts, authors = texts_to_invert(_corpus(cell), cut, most, cell.seed)
    own = None
    if "auxiliary" in inputs:
        own = texts_to_invert(_corpus(cell, "auxiliary"), cut, most, cell.seed)[0]
    attack = Inversion(
        attacks=tuple(inputs["attacks"]),
        draws=int(inputs.get("draws", 1)),
        layer=int(inputs.get("layer", 2)),
        overlap=bool(inputs.get("overlap", False)),
        seed=cell.seed,
        options=inputs.get("options"),
    )
    private = _private(cell)
    findings = attack.measure(texts, private, auxiliary=own, authors=authors)
    return _measurement(findings.rows, cell, private.recipe)


def _authorship(cell: Cell) -> Measurement:
    from capelet.attacks.authorship import Authorship, TextCnn
    from capelet.data.text import words_of

    inputs, corpus = cell.inputs, _corpus(cell)
    if corpus.author is None or corpus.texts is None:
        raise DataError(f"authorship needs texts and their authors; {corpus.name!r} lacks them")
    private = _private(cell)
    release = private.release(corpus.texts.tolist())
    baseline = bool(inputs.get("baseline"))
    attack = Authorship(
        shots=int(inputs["shots"]),
        writers=int(inputs["writers"]),
        seeds=[cell.seed],
        baseline=TextCnn() if baseline else None,
    )
    words = [words_of(text) for text in corpus.texts] if baseline else None
    rows = attack.measure(release.vectors, corpus.author.tolist(), words, release.recipe_hash)
    return _measurement(rows, cell, private.recipe)


def _check_words(inputs: Mapping[str, Any]) -> None:
    from capelet.studies.word_models import KINDS as MODELS

    if inputs["model"] not in MODELS:
        hint = did_you_mean(inputs["model"], MODELS)
        raise CapeletError(f"there is no word model {inputs['model']!r}; {hint}")


def _membership(cell: Cell) -> Measurement:
    """Train word vectors on the texts of half of the people, then ask of every text."""
    import numpy as np

    from capelet.attacks.membership.run import Membership
    from capelet.data.splits import group_rows
    from capelet.data.text import words_of
    from capelet.studies.word_models import WordTraining

    inputs, corpus = cell.inputs, _corpus(cell)
    if corpus.texts is None:
        raise DataError(f"membership is asked of texts, and {corpus.name!r} has none")
    groups = group_rows(corpus)
    # By person: a table that knows one text of a writer knows something of the others.
    half = np.random.default_rng([cell.seed, 0x4D]).permutation(int(groups.max()) + 1) % 2 == 0
    member = half[groups]
    texts = corpus.texts.tolist()
    training = WordTraining(
        inputs["model"],
        dimension=int(inputs["dimension"]),
        epochs=int(inputs["epochs"]),
        least=int(inputs["least"]),
        seed=cell.seed,
    )
    table = training.fit([words_of(texts[row]) for row in np.flatnonzero(member)])
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    attack = Membership(window=int(inputs["window"]), seed=cell.seed)
    findings = attack.of_words(texts, member, table, authors)
    return _measurement(findings.rows, cell)


def _dual(cell: Cell) -> Measurement:
    """Train a dual encoder on half of the people, and read words and writers of the others."""
    import numpy as np

    from capelet.attacks.authorship import Authorship
    from capelet.attacks.inversion.run import Inversion
    from capelet.data.splits import group_rows
    from capelet.defences.contrastive import Contrastive, Sentences
    from capelet.encoders import load
    from capelet.release import PrivateEncoder

    inputs, corpus = cell.inputs, _corpus(cell)
    if corpus.texts is None:
        raise DataError(f"a dual encoder learns from texts, and {corpus.name!r} has none")
    names = {item.name for item in fields(Contrastive)} - {"seed", "device"}
    settings = {key: value for key, value in inputs.items() if key in names}
    groups = group_rows(corpus)
    half = np.random.default_rng([cell.seed, 0xD0]).permutation(int(groups.max()) + 1) % 2 == 0
    own = corpus.take(np.flatnonzero(half[groups]))
    other = corpus.take(np.flatnonzero(~half[groups]))
    assert own.texts is not None and other.texts is not None
    writers = None if own.author is None else own.author.tolist()
    sentences = Sentences.of(own.texts.tolist(), writers, fewest=int(inputs["fewest"]))
    dual = Contrastive(**settings, seed=cell.seed, device="cpu").fit(sentences)
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateEncoder(load(str(dual.save(Path(folder) / "dual"))))
        attacks = tuple(inputs["attacks"])
        authors = None if other.author is None else [str(name) for name in other.author]
        inversion = Inversion(attacks=attacks, seed=cell.seed, options=inputs.get("options"))
        rows += inversion.measure(other.texts.tolist(), private, authors=authors).rows
        if authors is not None:
            shots = Authorship(int(inputs["shots"]), int(inputs["writers"]), seeds=[cell.seed])
            rows += shots.measure(private.release(other.texts.tolist()).vectors, authors)
    # Its folder is gone, and so is the name that it had there.
    return _measurement(rows, cell)


def _language(cell: Cell) -> Measurement:
    """Train a language model with canaries, and try to read them out again."""
    from capelet.workflows.language.attack import AttackSettings, TrainingTexts, attack_model
    from capelet.workflows.language.training import (
        CanarySettings,
        LanguageSettings,
        MethodSettings,
        NetworkSettings,
        ScheduleSettings,
        train_model,
    )

    inputs, corpus = cell.inputs, _corpus(cell)
    if corpus.texts is None:
        raise DataError(f"a language model learns from texts, and {corpus.name!r} has none")
    texts = corpus.texts.tolist()
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    is_noisy = inputs["method"] == "dpsgd"
    settings = LanguageSettings(
        NetworkSettings(
            inputs["network"],
            int(inputs["vocabulary"]),
            int(inputs["width"]),
            int(inputs["layers"]),
        ),
        ScheduleSettings(int(inputs["epochs"]), int(inputs["batch"]), seed=cell.seed, device="cpu"),
        MethodSettings(
            inputs["method"],
            float(inputs["strength"]),
            epsilon=inputs.get("epsilon"),
            seeded_noise=is_noisy,
        ),
        CanarySettings(tuple(inputs["canaries"]), inputs.get("per_level")),
    )
    with tempfile.TemporaryDirectory() as folder:
        train_model(texts, authors, Path(folder) / "model", settings)
        findings = attack_model(
            Path(folder) / "model",
            TrainingTexts(texts, authors),
            AttackSettings(int(inputs["samples"]), cell.seed, "cpu"),
        )
    return _measurement(findings.rows, cell)


_DUAL_KEYS: dict[str, Any] = {
    "network": "lstm",
    "width": 64,
    "layers": 1,
    "dimension": 64,
    "vocabulary": 5000,
    "length": 30,
    "epochs": 2,
    "batch": 256,
    "rate": None,
    "lambda_words": 0.0,
    "lambda_authors": 0.0,
    "negatives": "any",
    "fewest": 5,
    "attacks": ("multi-set",),
    "options": None,
    "shots": 5,
    "writers": 50,
}

KINDS: dict[str, Kind] = {
    "protect": Kind(
        "a method trained on one split, attacked afresh",
        1,
        {
            **_CORPUS,
            "encoder": "minilm",
            **_ATTRIBUTES,
            "method": None,
            **_setting_keys(),
            "hold_out": (),
            "members": None,
        },
        _protect,
        _check_method,
    ),
    "geometry": Kind(
        "several releases of the same texts, beside each other",
        1,
        {
            **_CORPUS,
            "encoder": "minilm",
            "split": "auto",
            "derived": (),
            "bins": None,
            "clouds": {},
        },
        _geometry,
        _check_clouds,
    ),
    "audit": Kind(
        "a release with given steps, attacked on one split",
        1,
        {**_CORPUS, **_RELEASE, **_ATTRIBUTES},
        _audit,
        _check_attackers,
    ),
    "invert": Kind(
        "the words of texts, read back from vectors",
        1,
        {
            **_CORPUS,
            **_RELEASE,
            "auxiliary": None,
            "attacks": ("multi-label",),
            "sentences": False,
            "most": None,
            "draws": 1,
            "layer": None,
            "overlap": None,
            "options": None,
        },
        _invert,
        _check_inversion,
    ),
    "authorship": Kind(
        "who of many wrote a text",
        1,
        {**_CORPUS, **_RELEASE, "shots": 10, "writers": 100, "baseline": None},
        _authorship,
        _check_steps,
    ),
    "membership": Kind(
        "which texts trained word vectors",
        1,
        {
            **_CORPUS,
            "model": "word2vec",
            "dimension": 100,
            "epochs": 5,
            "least": 5,
            "window": 5,
        },
        _membership,
        _check_words,
    ),
    "dual": Kind(
        "dual encoders that hide words and writers",
        1,
        {**_CORPUS, **_DUAL_KEYS},
        _dual,
    ),
    "language": Kind(
        "language models, and canaries read out of them",
        1,
        {
            **_CORPUS,
            "method": "none",
            "strength": 4.0,
            "epsilon": None,
            "network": "lstm",
            "vocabulary": 5000,
            "width": 64,
            "layers": 1,
            "epochs": 2,
            "batch": 100,
            "canaries": (1, 10),
            "per_level": None,
            "samples": 2000,
        },
        _language,
    ),
}
