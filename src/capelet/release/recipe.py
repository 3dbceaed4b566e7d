"""Steps in order make a private encoder; what it lets out, a Release, is all an attacker holds.

A recipe is the same list as a TOML file, and comes back from one:

    [[steps]]
    step = "encoder"
    name = "minilm"

    [[steps]]
    step = "laplace"
    epsilon = 8.0
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from capelet.data.splits import seed_list
from capelet.encoders import DEFAULT, load
from capelet.encoders.model_folder import (
    PRIVATE_ENCODER,
    claim_folder,
    kind_of,
    open_folder,
    write_folder,
)
from capelet.encoders.own import save_own
from capelet.errors import CapeletError, OutputError, name_field
from capelet.files import expand_user, write_whole
from capelet.interfaces import Encoder, Kind, Progress, Step, Vectors, silent
from capelet.mechanisms.words import OnTexts, WordDropout
from capelet.privacy.guarantees import Guarantee, as_seeded, chain, compose_trainings
from capelet.privacy.origins import Origin, keep_records
from capelet.release.heads import Head
from capelet.release.maps import Map
from capelet.release.steps import (
    as_step,
    check_flow,
    draws,
    encoder_step,
    isolates_rows,
    map_encoder,
    origins_of,
    outcomes,
    run,
    run_seeded,
    steps_of,
    with_own_files,
)

# The files of a private encoder's folder, beside its maps and its manifest.
ABOUT, RECIPE = "private.json", "recipe.toml"
MIXED_ROWS = "if a text's vector depends on no other text of the call, which nobody has tested here"
# The key under which a Parquet file of released vectors carries its guarantee and recipe.
METADATA = b"capelet"


@dataclass(frozen=True, eq=False)
class Release:
    """Vectors, what is guaranteed about them, and the recipe that made them.

    `word_guarantee` is what holds of each single word beyond that; see `PrivateEncoder`. Of a study
    release, which promises nothing, `unseeded_guarantee` is what the same noise would promise had
    it come from the operating system: scores of a study are read against the ceilings of that.
    """

    vectors: Vectors
    guarantee: Guarantee
    recipe: Mapping[str, Any]
    word_guarantee: Guarantee | None = None
    unseeded_guarantee: Guarantee | None = None

    @property
    def recipe_hash(self) -> str:
        return recipe_hash(self.recipe)

    def metadata(self) -> dict[bytes, bytes]:
        """What a file of this release says about itself."""
        return {METADATA: describe(self.guarantee, self.recipe, self.word_guarantee)}

    def save(self, path: Path | str) -> Path:
        """Write the vectors as Parquet, with guarantee and recipe inside the file; whole or not."""
        columns = {"vector": column_of(self.vectors)}
        table = pa.table(columns).replace_schema_metadata(self.metadata())
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(table, sink)
        write_whole(Path(path), sink.getvalue().to_pybytes())
        return Path(path)

    @classmethod
    def load(cls, path: Path | str) -> Release:
        """Read what `save` wrote; an `OutputError` when the file does not say how it was made."""
        try:
            table = pa.parquet.read_table(path)
            metadata = json.loads((table.schema.metadata or {})[METADATA])
            vectors = matrix_of(table["vector"])
            guarantee = Guarantee.from_json(metadata["guarantee"])
            of_words = metadata.get("word_guarantee")
            words = None if of_words is None else Guarantee.from_json(of_words)
            return cls(vectors, guarantee, metadata["recipe"], words)
        except (
            AttributeError,
            CapeletError,
            KeyError,
            OSError,
            TypeError,
            ValueError,
            pa.ArrowException,
        ):
            raise OutputError(
                f"{str(path)!r} is not a release: a Parquet file of vectors with guarantee and "
                "recipe in its metadata"
            ) from None


def column_of(vectors: Vectors) -> pa.FixedSizeListArray:
    """An (n, d) array as a column of vectors."""
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    return pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])


def matrix_of(column: pa.ChunkedArray) -> Vectors:
    """A column of vectors as an (n, d) array."""
    whole = column.combine_chunks()
    return whole.flatten().to_numpy().reshape(len(whole), -1)


def describe(
    guarantee: Guarantee, recipe: Mapping[str, Any], words: Guarantee | None = None
) -> bytes:
    """Guarantee and recipe as JSON; an unbounded ε is null, and so is no guarantee for words."""
    of_words = None if words is None else words.to_json()
    promise = {"guarantee": guarantee.to_json(), "word_guarantee": of_words}
    metadata = {**promise, "recipe": dict(recipe)}
    return json.dumps(metadata, sort_keys=True).encode()


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """A short name for a recipe: equal recipes have equal hashes."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


class PrivateEncoder:
    """Text steps, an encoder, vector steps: in this order, checked for fit before anything runs.

    Example: `PrivateEncoder("minilm")` releases the encoder's vectors as they are;
    `PrivateEncoder()` releases ready vectors as they are. The guarantee is that of the noise steps;
    what follows the last of them is post-processing and keeps it. Where word dropout precedes them,
    each single word has a stronger one beside it, `word_guarantee`. `head` tells the task's class
    from what it releases, where a training left one: it is no step, and comes with the folder.
    """

    def __init__(self, *steps: str | Encoder | Step, head: Head | None = None) -> None:
        self.steps = with_own_files([item for step in steps for item in _expand(step)])
        check_flow(self.steps)
        # Of several folders in a row only the last one's head knows what is released.
        self.head = head or (_head_of(steps[-1]) if steps else None)

    @classmethod
    def from_recipe(cls, path: Path | str, *, specimens: bool = False) -> PrivateEncoder:
        """The private encoder that a TOML recipe, or the folder of one, describes.

        A recipe with an unknown step or key is refused, and so is one with a known-broken specimen
        unless `specimens` allows it. A recipe that lies in a folder which `save` wrote is read
        through the folder's manifest, as if the folder were given: an ε that was edited is refused
        at either door. So is a recipe that names what was learnt and has no manifest beside it.
        """
        source = expand_user(path)
        if source.is_dir():
            return cls.load(source)
        # A link to the recipe of a folder is the recipe of that folder.
        folder = source.resolve().parent
        if source.is_file() and kind_of(folder) == PRIVATE_ENCODER:
            if source.resolve().name != RECIPE:
                raise CapeletError(
                    f"{str(path)!r} lies in the folder of a private encoder and is not its recipe; "
                    f"give the folder {str(source.parent)!r}, or put your recipe elsewhere"
                )
            return cls.load(folder)
        try:
            recipe = _parse(source.read_bytes(), path)
        except OSError as error:
            raise CapeletError(
                f"cannot read the recipe {str(path)!r} ({error.strerror}); give a TOML file, or "
                "a folder that `capelet protect` wrote"
            ) from None
        return cls.from_steps(recipe, specimens=specimens)

    @classmethod
    def from_steps(
        cls, recipe: Mapping[str, Any], *, specimens: bool = False, folder: Path | None = None
    ) -> PrivateEncoder:
        """The same from a recipe that is already a mapping, such as `release.recipe`.

        What was learnt is files: `folder` is the private encoder's where they lie, which must have
        this very recipe.
        """
        if folder is None:
            return cls(*steps_of(recipe, specimens=specimens))
        private = cls.load(folder)
        source = open_folder(folder, PRIVATE_ENCODER)
        if private.recipe != cls(*steps_of(recipe, source)).recipe:
            raise CapeletError(
                f"the recipe is not that of the private encoder {str(folder)!r}; load the folder"
            )
        return private

    def to_recipe(self) -> str:
        """The steps as TOML, as `from_recipe` reads it."""
        blocks = []
        for entry in self.recipe["steps"]:
            lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
            blocks.append("\n".join(["[[steps]]", *lines]))
        return "\n\n".join(blocks) + "\n"

    def save(self, folder: Path | str, about: Mapping[str, Any] | None = None) -> Path:
        """Write the private encoder as a model folder: its recipe, its maps, an account.

        `about` is kept with it: how it was trained, on what. The folder works wherever an encoder's
        name does.
        """
        target = claim_folder(folder)
        own = self.encoder
        # Inner folders first: the outer manifest lists their manifests by hash.
        folders = save_own(own, target) if own is not None else ()
        summary = {"guarantee": self.guarantee.sentence(), "about": dict(about or {})}
        files: dict[str, bytes | str | Path] = {
            step.file: step.content for step in self.steps if isinstance(step, Map)
        }
        if self.head is not None:
            files |= self.head.files()
        files[RECIPE] = self.to_recipe()
        files[ABOUT] = json.dumps(summary, indent=1, ensure_ascii=False) + "\n"
        # Before the manifest: whoever loads the encoder must know what trained it.
        keep_records(origin.id for origin in self.origins)
        return write_folder(target, PRIVATE_ENCODER, files, folders)

    @classmethod
    def load(cls, folder: Path | str) -> PrivateEncoder:
        """Read what `save` wrote; refused when any of it was changed, or is of another format."""
        source = open_folder(folder, PRIVATE_ENCODER)
        # Every file, before any is used: a folder counts as a whole.
        source.check()
        steps = steps_of(_parse(source.read(RECIPE), source.path / RECIPE), source)
        return cls(*steps, head=Head.read(source))

    @property
    def consumes(self) -> Kind:
        return self.steps[0].consumes if self.steps else "vectors"

    @property
    def encoder(self) -> Encoder | None:
        """The encoder among the steps; None when ready vectors are released."""
        step = encoder_step(self.steps)
        return None if step is None else step.encoder

    @property
    def protects(self) -> bool:
        """Whether anything but the encoder touches the vectors."""
        return len(self.steps) > (self.encoder is not None)

    @property
    def draws(self) -> bool:
        """Whether two releases of one text differ."""
        return any(draws(step) for step in self.steps)

    @property
    def outcomes(self) -> int | None:
        """How many values a released row can take; None where the steps set no bound."""
        return outcomes(self.steps)

    @property
    def guarantee(self) -> Guarantee:
        """What the noise promises to texts that pass, and what the texts that trained are promised.

        They are two promises. A text that only passes has the first, given all that was learnt; of
        a text that trained, everything that was learnt tells too.
        """
        passing = chain([step.guarantee for step in self.steps if step.guarantee is not None])
        training = compose_trainings([origin.training for origin in self.origins])
        return replace(self._about_rows(passing), training=training)

    def _about_rows(self, guarantee: Guarantee) -> Guarantee:
        """The guarantee with what it rests on where nobody knows whether steps mix rows.

        ε is about one text: of what its bits tell in the vectors of others nothing is proven.
        """
        if guarantee.status == "none" or isolates_rows(self.steps):
            return guarantee
        return guarantee.with_caveat(MIXED_ROWS)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where everything comes from that was learnt from somebody's texts."""
        return origins_of(self.steps)

    @property
    def word_guarantee(self) -> Guarantee | None:
        """What dropout adds for each single word, ε' = ln[(1−μ)e^ε + μ]; None where it adds none.

        It holds beside `guarantee`, which alone bounds what the whole text gives away. ε is that of
        the local noise for whole texts after the dropout. What precedes the dropout may only be a
        step that treats each word by itself: then texts that differ in one word still do.
        """
        promises: list[Guarantee] = []
        for place, step in enumerate(self.steps):
            if not isinstance(step, OnTexts):
                break  # anything else may let one word change many
            noise = [later.guarantee for later in self.steps[place + 1 :]]
            local = chain([g for g in noise if g and (g.notion, g.unit) == ("local", "text")])
            if isinstance(step, WordDropout) and step.mu > 0 and local.notion == "local":
                promises.append(step.amplifies(local))
        return self._about_rows(chain(promises)) if promises else None

    @property
    def recipe(self) -> dict[str, Any]:
        return {"steps": [step.describe() for step in self.steps]}

    def release(self, inputs: Sequence[str] | Vectors, progress: Progress = silent) -> Release:
        """Send texts (or ready vectors) through all steps; noise is drawn afresh on every call."""
        batch = run(self.steps, inputs, progress)
        return Release(np.asarray(batch), self.guarantee, self.recipe, self.word_guarantee)

    def encode(self, texts: str | Sequence[str] | Vectors, progress: Progress = silent) -> Vectors:
        """The vectors of a release: `encode(["one", "two"])`; one text gives one vector."""
        if isinstance(texts, str):
            return np.asarray(self.release([texts], progress).vectors[0])
        inputs = texts if isinstance(texts, np.ndarray) and texts.ndim == 2 else list(texts)
        return self.release(inputs, progress).vectors

    transform = encode

    def study_release(
        self,
        inputs: Sequence[str] | Vectors,
        seed: int,
        progress: Progress = silent,
        *,
        draw: str = "release 0",
    ) -> Release:
        """The same distribution from a seeded generator, for studies: it promises nothing.

        Equal seeds give equal bytes; `draw` names one of several from a seed. The status of its
        guarantee is `none` and its recipe names the seed, so that no ledger takes the one and no
        encoder is made of the other.
        """
        number = seed_list([seed])[0]
        batch = run_seeded(self.steps, inputs, number, draw, progress)
        words = self.word_guarantee
        return Release(
            np.asarray(batch),
            as_seeded(self.guarantee),
            {**self.recipe, "seed": number},
            None if words is None else as_seeded(words),
            unseeded_guarantee=self.guarantee,
        )

    def unprotected(self) -> PrivateEncoder:
        """The encoder alone, for comparison."""
        return PrivateEncoder(*([self.encoder] if self.encoder is not None else []))

    def with_encoder(self, change: Callable[[Encoder], Encoder]) -> PrivateEncoder:
        """The same steps around another encoder, such as the one with a cache in front."""
        return self.with_steps(map_encoder(self.steps, change))

    def with_steps(self, steps: Sequence[Step]) -> PrivateEncoder:
        """Other steps, and all else as it is here."""
        return PrivateEncoder(*steps, head=self.head)


def encode(
    texts: str | Sequence[str] | Vectors,
    encoder: PrivateEncoder | Encoder | str | None = None,
    *,
    recipe: Path | str | None = None,
    progress: Progress = silent,
) -> Vectors:
    """The vectors that a private encoder releases of these texts.

    Example: `encode(["one text", "another"], "private/mails")`. `encoder` is an encoder, or the
    name or the folder of one; `recipe` is a TOML recipe in its place.
    """
    if encoder is not None and recipe is not None:
        raise CapeletError(f"give {name_field('encoder')} or {name_field('recipe')}, not both")
    if recipe is not None:
        return PrivateEncoder.from_recipe(recipe).encode(texts, progress)
    if not isinstance(encoder, PrivateEncoder):
        encoder = PrivateEncoder(DEFAULT if encoder is None else encoder)
    return encoder.encode(texts, progress)


def is_private_encoder(name: str) -> bool:
    """Whether this is a folder that `PrivateEncoder.save` wrote."""
    return kind_of(expand_user(name)) == PRIVATE_ENCODER


def _expand(step: str | Encoder | Step) -> tuple[Step, ...]:
    """The step itself, the encoder of this name, or all steps of a private encoder's folder."""
    if not isinstance(step, str):
        return (as_step(step),)
    if is_private_encoder(step):
        return PrivateEncoder.load(expand_user(step)).steps
    return (as_step(load(step)),)


def _head_of(step: str | Encoder | Step) -> Head | None:
    """The head in the folder of a private encoder; None for any other step."""
    if not isinstance(step, str) or not is_private_encoder(step):
        return None
    return Head.read(open_folder(expand_user(step), PRIVATE_ENCODER))


def _parse(content: bytes, path: Path | str) -> dict[str, Any]:
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CapeletError(f"the recipe {str(path)!r} is not TOML: {error}") from None
