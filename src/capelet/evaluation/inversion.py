"""The whole inversion attack on one release: split, train attackers, read victims, findings.

Auxiliary texts and victims are disjoint: by author where authors are known, else by text, identical
texts staying together. The attacker's auxiliary texts pass through the very same release, with a
fresh noise draw for each pass; the victims pass once. No private label is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.inversion.measure import (
    Attacker,
    Victims,
    examples,
    inversion_findings,
    reference_findings,
    sentence_findings,
)
from capelet.attacks.inversion.word_sets import Vocabulary, WordSets, most_frequent
from capelet.data.corpus import Corpus
from capelet.data.text import sentences_of, words_of
from capelet.errors import CapeletError, DataError, did_you_mean, name_field
from capelet.findings import Finding, Findings
from capelet.interfaces import Progress, silent
from capelet.training.device import gpu_available

if TYPE_CHECKING:
    from capelet.attacks.inversion.blackbox import Inverter
    from capelet.attacks.inversion.layers import OpenDual, OpenModel, OpenTable
    from capelet.release import PrivateEncoder

Rows = npt.NDArray[np.intp]

ATTACKS = {
    "multi-label": "black box: every word is a yes-or-no question (eq. 8)",
    "multi-set": "black box: one word after another, until the set is named (eq. 9)",
    "sequence": "black box: a whole sentence, proposed and corrected (beyond eq. 9; slow)",
    "sparse-coding": "white box: few words with this mean vector (eq. 7)",
    "relaxation": "white box: gradients through the encoder (eq. 5; slow)",
    "relaxation-mapped": "white box: gradients to a lower layer, by a learnt map (eq. 6; slow)",
}
NEEDS_TEXTS = (
    f"inversion reads texts back, so it needs them; name their column ({name_field('text')})"
)
BLACK_BOX = ("multi-label", "multi-set")
SENDING = "sequence"  # black box too, but sends texts as it goes
_GRADIENT_VICTIMS = 64  # a gradient attack takes seconds for each text


@dataclass(frozen=True)
class Inversion:
    """Which attackers try, how the texts are split, and what is shown.

    `options` are constructor arguments of an attacker, by its name: `{"multi-label": {"epochs":
    30}}`. `draws` is how often each auxiliary text passes through a noised release; `most` bounds
    the black-box attackers' vocabulary; `redact` keeps texts and words out of the examples.
    """

    attacks: Sequence[str] = BLACK_BOX
    draws: int = 1
    most: int = 20_000
    victims: int = 2_000
    share: float = 0.15
    layer: int = 2
    redact: bool = True
    overlap: bool = False
    seed: int = 0
    options: Mapping[str, Mapping[str, Any]] | None = None

    def measure(
        self,
        texts: Sequence[str],
        private: PrivateEncoder,
        *,
        auxiliary: Sequence[str] | None = None,
        authors: Sequence[Any] | None = None,
        progress: Progress = silent,
    ) -> Findings:
        """Attack the release of `texts`; of all of them when `auxiliary` texts are given."""
        check_attacks(self.attacks)
        parts = self._parts(texts, auxiliary, authors)
        white_box = self._open(private)
        vocabulary = Vocabulary.of(parts.auxiliary, most=self.most)
        release = private.release(parts.victims, progress)
        draws = [
            private.release(parts.auxiliary, progress).vectors
            # Without noise every draw would be the same.
            for _ in range(self.draws if private.draws else 1)
        ]
        data = _AttackData(
            parts,
            vocabulary,
            np.stack(draws),
            release.vectors,
            white_box,
            release.recipe_hash,
            _sender(private) if SENDING in self.attacks else None,
        )
        return self._findings(data, dict(release.recipe), progress)

    def _parts(
        self, texts: Sequence[str], auxiliary: Sequence[str] | None, authors: Sequence[Any] | None
    ) -> TextParts:
        random = np.random.default_rng([self.seed, 0x1E])
        groups = _groups(texts, authors)
        if auxiliary is not None:
            victim_rows = np.sort(random.permutation(len(texts))[: self.victims])
            own = list(auxiliary)
        else:
            # Whole authors (or groups of identical texts) are drawn, until there are enough
            # victims.
            order = random.permutation(int(groups.max(initial=-1)) + 1)
            place = np.argsort(order)[groups]
            order_of_rows = np.argsort(place, kind="stable")
            most = min(self.victims, max(1, int(self.share * len(texts))))
            within = np.isin(groups, np.unique(groups[order_of_rows[:most]]))
            victim_rows = np.flatnonzero(within)[: self.victims]
            own = [texts[row] for row in np.flatnonzero(~within).tolist()]
        victims = [texts[row] for row in victim_rows.tolist()]
        if len(victims) < 10:
            raise DataError(f"{len(victims)} texts are left as victims; give at least 10")
        if auxiliary is not None and not self.overlap:
            overlap = len(victims) - len(unshared(victims, own))
            if overlap:
                raise DataError(
                    f"{overlap} of {len(victims)} victims stand in the auxiliary texts too, which "
                    "inflates every score; leave them out, or allow the overlap on purpose"
                )
        elif not self.overlap:
            own = unshared(own, victims)
        return TextParts(own, victims, groups[victim_rows])

    def _open(self, private: PrivateEncoder) -> OpenModel | OpenTable | OpenDual | None:
        white_box_attacks = [name for name in self.attacks if name not in (*BLACK_BOX, SENDING)]
        if private.encoder is None and (white_box_attacks or SENDING in self.attacks):
            name, need = (
                (SENDING, "sends texts of its own through the encoder")
                if SENDING in self.attacks
                else (white_box_attacks[0], "needs the encoder's own weights (white-box access)")
            )
            raise CapeletError(
                f"{name!r} {need}, and ready vectors come without one; use 'multi-label' or "
                "'multi-set'"
            )
        if private.encoder is None or not white_box_attacks:
            return None
        from capelet.attacks.inversion.layers import OpenTable, open_encoder

        white_box = open_encoder(private.encoder)
        gradients = [name for name in white_box_attacks if name.startswith("relaxation")]
        if gradients and isinstance(white_box, OpenTable):
            raise CapeletError(
                f"{gradients[0]!r} needs gradients, and {private.encoder.name!r} is a table of "
                "vectors; use 'sparse-coding', or the black-box 'multi-label' or 'multi-set'"
            )
        return white_box

    def _findings(
        self, data: _AttackData, recipe: Mapping[str, Any], progress: Progress
    ) -> Findings:
        vocabulary = data.vocabulary
        victims = Victims(data.parts.victims, data.parts.units, data.recipe_hash)
        # The blind guess is tuned on auxiliary texts, as attackers are.
        auxiliary_sets = vocabulary.sets(data.parts.auxiliary[:2000])
        blind = most_frequent(auxiliary_sets, len(vocabulary), len(victims.texts))
        rows: list[Finding] = reference_findings(victims, blind, vocabulary)
        guesses: dict[str, WordSets] = {}
        sentences: dict[str, list[str]] = {}
        for name in self.attacks:
            # What numbers the same words alike, so that blind guesses hold for both.
            known = vocabulary if name in BLACK_BOX else data.wide
            if name == SENDING:
                sentences[name] = self._sentences(data, progress)
                # Words that the vocabulary left out count too, right or wrong.
                known = known.with_words(
                    word for text in sentences[name] for word in words_of(text)
                )
                guesses[name] = known.sets(sentences[name])
            else:
                guesses[name] = self._guess(name, data, progress)
            # A slow attacker reads the first victims only.
            some = victims.first(len(guesses[name]))
            parameters = {
                "auxiliary": len(data.parts.auxiliary),
                "draws": len(data.auxiliary),
                "vocabulary": len(known),
                "access": "black-box" if name in (*BLACK_BOX, SENDING) else "white-box",
            }
            attacker = Attacker(name, parameters)
            rows += inversion_findings(attacker, some, guesses[name], blind, known)
            if name in sentences:
                rows += sentence_findings(attacker, some, sentences[name])
        artefact = self._examples(data, guesses, sentences)
        return Findings(tuple(rows), recipe=recipe, artefacts={"inversion_examples": artefact})

    def _examples(
        self,
        data: _AttackData,
        guesses: Mapping[str, WordSets],
        sentences: Mapping[str, Sequence[str]],
    ) -> dict[str, Any]:
        """Some victims that all but the gradient attackers read, beside what they read."""
        sentence_words = [
            word for texts in sentences.values() for text in texts for word in words_of(text)
        ]
        vocabulary = data.wide.with_words(sentence_words)
        count = min([len(texts) for texts in sentences.values()] + [len(data.parts.victims)])
        return examples(
            {
                name: guess.take(np.arange(count))
                for name, guess in guesses.items()
                if len(guess) >= count
            },
            data.parts.victims[:count],
            vocabulary,
            redact=self.redact,
            sentences=sentences,
        )

    def _sentences(self, data: _AttackData, progress: Progress) -> list[str]:
        """What the sequence attacker reads, of the first so many victims."""
        from capelet.attacks.inversion.sequence import SequenceInversion

        options = {"seed": self.seed, **(self.options or {}).get(SENDING, {})}
        # A weak attacker looks like privacy: where there is a GPU, the large one runs.
        build = SequenceInversion.large if gpu_available() else SequenceInversion
        attack = build(**options)
        assert data.send is not None
        inverter = attack.fit(
            data.auxiliary,
            data.parts.auxiliary,
            data.send,
            self._inverter("multi-label", data, progress),
            data.vocabulary,
            progress,
        )
        return [read.text for read in inverter.read(data.victims[: attack.victims], progress)]

    def _inverter(self, name: str, data: _AttackData, progress: Progress) -> Inverter:
        """A black-box attacker of words, fitted once."""
        from capelet.attacks.inversion.blackbox import MultiLabel, MultiSet, WordAttack

        if name not in data.inverters:
            kind: type[WordAttack] = MultiLabel if name == "multi-label" else MultiSet
            attack = kind(**{"seed": self.seed, **(self.options or {}).get(name, {})})
            sets = data.vocabulary.sets(data.parts.auxiliary)
            data.inverters[name] = attack.fit(data.auxiliary, sets, data.vocabulary, progress)
        return data.inverters[name]

    def _guess(self, name: str, data: _AttackData, progress: Progress) -> WordSets:
        options = dict((self.options or {}).get(name, {}))
        own = data.parts.auxiliary
        if name in BLACK_BOX:
            return self._inverter(name, data, progress).predict(data.victims)
        if name == "sparse-coding":
            from capelet.attacks.inversion.sparse import SparseCoding

            assert data.white_box is not None
            coder = SparseCoding(seed=self.seed, **options).fit(
                data.auxiliary,
                own,
                data.white_box.tokens,
                data.white_box.table,
                data.wide,
                progress,
            )
            return coder.predict(data.victims, progress)
        from capelet.attacks.inversion.layers import OpenDual, OpenModel
        from capelet.attacks.inversion.relaxation import Relaxation

        assert isinstance(data.white_box, OpenModel | OpenDual)
        # Below its release a dual encoder shows the mean of word vectors, and nothing between.
        lower = 0 if isinstance(data.white_box, OpenDual) else self.layer
        layer = lower if name == "relaxation-mapped" else None
        search = Relaxation(seed=self.seed, **{"layer": layer, **options})
        relaxer = search.fit(data.auxiliary[0], own, data.white_box, data.wide, progress)
        return relaxer.predict(data.victims[:_GRADIENT_VICTIMS], progress)


def texts_to_invert(
    corpus: Corpus, by_sentence: bool, most: int | None, seed: int
) -> tuple[list[str], list[str] | None]:
    """Texts and their authors, as they are or cut into sentences; at most so many of them."""
    if corpus.texts is None:
        raise DataError(NEEDS_TEXTS)
    texts = corpus.texts.tolist()
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    if by_sentence:
        texts, owner = sentences_of(texts)
        # Sentences of one text stay together, as do all of one author.
        authors = [f"text {row}" if authors is None else authors[row] for row in owner.tolist()]
    if most is not None and len(texts) > most:
        # The tag keeps this draw apart from the splits, which start from the same seed.
        sample = np.sort(np.random.default_rng([seed, 0x1F]).permutation(len(texts))[:most])
        texts = [texts[row] for row in sample]
        authors = None if authors is None else [authors[row] for row in sample]
    return texts, authors


@dataclass(frozen=True, eq=False)
class TextParts:
    """The attacker's own texts, the victims, and whom each victim belongs to."""

    auxiliary: list[str]
    victims: list[str]
    units: Rows


@dataclass(frozen=True, eq=False)
class _AttackData:
    """What one run of attackers is given: texts, released vectors, and the opened encoder."""

    parts: TextParts
    vocabulary: Vocabulary
    auxiliary: npt.NDArray[np.floating[Any]]
    victims: npt.NDArray[np.floating[Any]]
    white_box: OpenModel | OpenTable | OpenDual | None
    recipe_hash: str
    send: Callable[[Sequence[str]], npt.NDArray[np.floating[Any]]] | None = None
    inverters: dict[str, Inverter] = field(default_factory=dict)

    @cached_property
    def wide(self) -> Vocabulary:
        """What a white-box attacker can name: every auxiliary word, and those of the token table.

        It asks for no output of its own per word, so nothing bounds them as `most` does.
        """
        if self.white_box is None:
            return self.vocabulary
        return Vocabulary.of(self.parts.auxiliary).with_words(self.white_box.words())


def _sender(private: PrivateEncoder) -> Callable[[Sequence[str]], npt.NDArray[np.floating[Any]]]:
    """The release as a function of texts, past the cache: hundreds of thousands come once each."""
    from capelet.encoders.own import unwrap

    direct = private.with_encoder(unwrap)
    return lambda texts: direct.release(list(texts)).vectors


def unshared(texts: Sequence[str], others: Sequence[str]) -> list[str]:
    """The texts whose words, in order, are not those of another: two people may say the same."""
    there = {" ".join(words_of(text)) for text in others}
    return [text for text in texts if " ".join(words_of(text)) not in there]


def check_attacks(names: Iterable[str]) -> None:
    """Refuse the name of an attack that there is not."""
    for name in names:
        if name not in ATTACKS:
            raise CapeletError(f"there is no attack {name!r}; {did_you_mean(name, ATTACKS)}")


def _groups(texts: Sequence[str], authors: Sequence[Any] | None) -> Rows:
    """Texts that must stay together: one author's, or those of the same words."""
    if authors is not None:
        if len(authors) != len(texts):
            raise DataError(f"{len(authors)} authors do not match {len(texts)} texts")
        names = [str(author) for author in authors]
    else:
        names = [" ".join(words_of(text)) for text in texts]
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.intp)
