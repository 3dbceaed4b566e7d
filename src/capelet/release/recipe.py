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
import importlib.metadata
import inspect
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from capelet.encoders import load
from capelet.encoders.own import OWN, load_own, save_own
from capelet.errors import CapeletError, OutputError, did_you_mean
from capelet.files import writable_folder, write_whole
from capelet.interfaces import Encoder, Kind, Progress, Step, Vectors, silent
from capelet.mechanisms import MECHANISMS
from capelet.mechanisms.specimens import SPECIMENS
from capelet.mechanisms.words import OnTexts, WordDropout
from capelet.privacy.guarantees import NONE, Guarantee, chain
from capelet.release.maps import Map

FOLDER_FORMAT = 1
"""The newest layout of a private encoder's folder that this version reads."""
ABOUT = "private.json"
RECIPE = "recipe.toml"
METADATA = b"capelet"
"""The key under which a Parquet file of released vectors carries its guarantee and recipe."""


@dataclass(frozen=True, eq=False)
class Release:
    """Vectors, what is guaranteed about them, and the recipe that made them.

    `word_guarantee` is what holds of each single word beyond that; see `PrivateEncoder`.
    """

    vectors: Vectors
    guarantee: Guarantee
    recipe: Mapping[str, Any]
    word_guarantee: Guarantee | None = None

    @property
    def recipe_hash(self) -> str:
        return recipe_hash(self.recipe)

    def metadata(self) -> dict[bytes, bytes]:
        """What a file of this release says about itself."""
        return {METADATA: describe(self.guarantee, self.recipe, self.word_guarantee)}

    def save(self, path: Path | str) -> Path:
        """Write the vectors as Parquet, with guarantee and recipe inside the file; whole or not."""
        width = self.vectors.shape[1]
        flat = pa.array(np.ascontiguousarray(self.vectors, dtype=np.float32).ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, width)
        table = pa.table({"vector": column}).replace_schema_metadata(self.metadata())
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(table, sink)
        write_whole(Path(path), sink.getvalue().to_pybytes())
        return Path(path)

    @classmethod
    def load(cls, path: Path | str) -> Release:
        """Read what `save` wrote; an `OutputError` when the file does not say how it was made."""
        try:
            table = pa.parquet.read_table(path)
            said = json.loads((table.schema.metadata or {})[METADATA])
            column = table["vector"].combine_chunks()
            vectors = column.flatten().to_numpy().reshape(len(column), -1)
            promised = said["guarantee"]
            guarantee = NONE if promised["notion"] == "none" else Guarantee(**promised)
            of_words = said.get("word_guarantee")
            words = None if of_words is None else Guarantee(**of_words)
            return cls(vectors, guarantee, said["recipe"], words)
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException):
            raise OutputError(
                f"{str(path)!r} is not a release: a Parquet file of vectors with guarantee and "
                "recipe in its metadata"
            ) from None


def describe(
    guarantee: Guarantee, recipe: Mapping[str, Any], words: Guarantee | None = None
) -> bytes:
    """Guarantee and recipe as JSON; an unbounded ε is null, and so is no guarantee for words."""
    promised = asdict(guarantee)
    if guarantee.notion == "none":
        promised["epsilon"] = None
    of_words = None if words is None else asdict(words)
    said = {"guarantee": promised, "word_guarantee": of_words, "recipe": dict(recipe)}
    return json.dumps(said, sort_keys=True).encode()


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """A short name for a recipe: equal recipes have equal hashes."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


class PrivateEncoder:
    """Text steps, an encoder, vector steps: in this order, checked for fit before anything runs.

    Example: `PrivateEncoder("minilm")` releases the encoder's vectors as they are;
    `PrivateEncoder()` releases ready vectors as they are. The guarantee is that of the noise steps;
    what follows the last of them is post-processing and keeps it. Where word dropout precedes them,
    each single word has a stronger one beside it, `word_guarantee`.
    """

    def __init__(self, *steps: str | Encoder | Step) -> None:
        self.steps = _apart([item for step in steps for item in _expanded(step)])
        flow: Kind | None = None
        for step in self.steps:
            consumes, emits = _flow(step)
            if flow is not None and flow != consumes:
                raise CapeletError(
                    f"the step {_name(step)!r} consumes {consumes}, not {flow}; "
                    "put text steps before the encoder and vector steps after it"
                )
            flow = emits
        if flow == "texts":
            raise CapeletError("the steps end in texts; an encoder is missing")

    @classmethod
    def from_recipe(cls, path: Path | str, *, specimens: bool = False) -> PrivateEncoder:
        """The private encoder that a TOML recipe describes.

        A recipe with an unknown step or key is refused, and so is one with a known-broken specimen
        unless `specimens` allows it. A folder that `save` wrote is its recipe.
        """
        if Path(path).is_dir():
            return cls.load(path)
        try:
            recipe = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise CapeletError(
                f"cannot read the recipe {str(path)!r} ({error.strerror}); give a TOML file"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CapeletError(f"the recipe {str(path)!r} is not TOML: {error}") from None
        return cls.from_steps(recipe, specimens=specimens, folder=Path(path).parent)

    @classmethod
    def from_steps(
        cls, recipe: Mapping[str, Any], *, specimens: bool = False, folder: Path | None = None
    ) -> PrivateEncoder:
        """The same from a recipe that is already a mapping, such as `release.recipe`.

        Fitted maps are files: `folder` is where they lie.
        """
        unknown = sorted(set(recipe) - {"steps"})
        if unknown:
            raise CapeletError(f"a recipe has only [[steps]]; it was given {unknown[0]!r} too")
        steps = recipe.get("steps")
        if not isinstance(steps, list) or not steps:
            raise CapeletError("a recipe needs at least one [[steps]] entry, such as an encoder")
        return cls(*[_made(entry, specimens, folder or Path()) for entry in steps])

    def to_recipe(self) -> str:
        """The steps as TOML, as `from_recipe` reads it."""
        blocks = []
        for entry in self.recipe["steps"]:
            lines = [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
            blocks.append("\n".join(["[[steps]]", *lines]))
        return "\n\n".join(blocks) + "\n"

    def save(self, folder: Path | str, about: Mapping[str, Any] | None = None) -> Path:
        """Write the private encoder as a folder: its recipe, its maps, and what is said of it.

        `about` is kept with it: how it was trained, on what. The folder works wherever an encoder's
        name does. What says that it is one is written last.
        """
        target = writable_folder(folder)
        for step in self.steps:
            if isinstance(step, Map):
                step.save(target)
            elif isinstance(step, Encoder):
                save_own(step, target)
        recipe = self.to_recipe()
        write_whole(target / RECIPE, recipe)
        said = {
            "format": FOLDER_FORMAT,
            "capelet": importlib.metadata.version("capelet"),
            "recipe_sha256": hashlib.sha256(recipe.encode()).hexdigest(),
            "guarantee": self.guarantee.sentence(),
            "about": dict(about or {}),
        }
        write_whole(target / ABOUT, json.dumps(said, indent=1, ensure_ascii=False) + "\n")
        return target

    @classmethod
    def load(cls, folder: Path | str) -> PrivateEncoder:
        """Read what `save` wrote; refused when it was changed or is of a newer format."""
        source = Path(folder)
        try:
            said = json.loads((source / ABOUT).read_text(encoding="utf-8"))
            found, expected = int(said["format"]), str(said["recipe_sha256"])
            recipe = (source / RECIPE).read_bytes()
        except (OSError, KeyError, TypeError, ValueError):
            raise OutputError(
                f"{str(folder)!r} is not a private encoder: a folder with {ABOUT} and {RECIPE}, "
                "as `capelet protect` writes it"
            ) from None
        if found > FOLDER_FORMAT:
            raise OutputError(
                f"the private encoder {str(folder)!r} has format {found}, and this version reads "
                f"up to {FOLDER_FORMAT}; install a newer capelet"
            )
        if hashlib.sha256(recipe).hexdigest() != expected:
            raise OutputError(
                f"the recipe of the private encoder {str(folder)!r} was changed after it was "
                "written; restore the folder, or train again"
            )
        return cls.from_recipe(source / RECIPE)

    @property
    def consumes(self) -> Kind:
        return _flow(self.steps[0])[0] if self.steps else "vectors"

    @property
    def encoder(self) -> Encoder | None:
        """The encoder among the steps; None when ready vectors are released."""
        return next((step for step in self.steps if isinstance(step, Encoder)), None)

    @property
    def protects(self) -> bool:
        """Whether anything but the encoder touches the vectors."""
        return any(not isinstance(step, Encoder) for step in self.steps)

    @property
    def guarantee(self) -> Guarantee:
        noise = [_guarantee(step) for step in self.steps]
        return chain([item for item in noise if item is not None])

    @property
    def word_guarantee(self) -> Guarantee | None:
        """What dropout adds for each single word, ε' = ln[(1−μ)e^ε + μ]; None where it adds none.

        It holds beside `guarantee`, which alone bounds what the whole text gives away. ε is that of
        the local noise for whole texts after the dropout. What precedes the dropout may only be a
        step that treats each word by itself: then texts that differ in one word still do.
        """
        found: list[Guarantee] = []
        for place, step in enumerate(self.steps):
            if not isinstance(step, OnTexts):
                break
            noise = [_guarantee(later) for later in self.steps[place + 1 :]]
            local = chain([g for g in noise if g and (g.notion, g.unit) == ("local", "text")])
            if isinstance(step, WordDropout) and step.mu > 0 and local.notion == "local":
                found.append(step.amplifies(local))
        return chain(found) if found else None

    @property
    def recipe(self) -> dict[str, Any]:
        return {"steps": [_describe(step) for step in self.steps]}

    def release(self, inputs: Sequence[str] | Vectors, progress: Progress = silent) -> Release:
        """Send texts (or ready vectors) through all steps; noise is drawn afresh on every call."""
        batch: Any = inputs
        for step in self.steps:
            batch = step.encode(batch, progress) if isinstance(step, Encoder) else step(batch)
        return Release(np.asarray(batch), self.guarantee, self.recipe, self.word_guarantee)

    def unprotected(self) -> PrivateEncoder:
        """The encoder alone, for comparison."""
        return PrivateEncoder(*[step for step in self.steps if isinstance(step, Encoder)])


def is_private_encoder(name: str) -> bool:
    """Whether this is a folder that `PrivateEncoder.save` wrote."""
    return (Path(name).expanduser() / ABOUT).is_file()


def _expanded(step: str | Encoder | Step) -> tuple[Encoder | Step, ...]:
    """The step itself, the encoder of this name, or all steps of a private encoder's folder."""
    if not isinstance(step, str):
        return (step,)
    if is_private_encoder(step):
        return PrivateEncoder.load(Path(step).expanduser()).steps
    return (load(step),)


def _apart(steps: Sequence[Encoder | Step]) -> tuple[Encoder | Step, ...]:
    """The steps, with a file name of its own for each map: folders put together share theirs."""
    taken: dict[str, str] = {}
    found: list[Encoder | Step] = []
    for step in steps:
        if isinstance(step, Map):
            first, count = Path(step.file), 1
            while taken.setdefault(step.file, step.digest) != step.digest:
                count += 1
                step = step.named(f"{first.stem}-{count}{first.suffix}")
        found.append(step)
    return tuple(found)


def _made(entry: Any, specimens: bool, folder: Path) -> Encoder | Step:
    """One step from its recipe entry, with every key checked."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("step"), str):
        raise CapeletError('each of the [[steps]] of a recipe needs a name: step = "laplace"')
    name = entry["step"]
    options = {key: value for key, value in entry.items() if key != "step"}
    if name == "encoder":
        return _encoder(options, folder)
    if name == "map":
        return _map(options, folder)
    if name.startswith("specimen:") and not specimens:
        raise CapeletError(f"{name!r} is known to be broken and may not stand in a recipe")
    broken = {f"specimen:{key}": made for key, made in SPECIMENS.items()} if specimens else {}
    known = {**MECHANISMS, **broken}
    if name not in known:
        raise CapeletError(
            f"unknown step {name!r}; {did_you_mean(name, ['encoder', 'map', *known])}"
        )
    accepted = inspect.signature(known[name]).parameters
    for key in options:
        if key not in accepted:
            raise CapeletError(f"the step {name!r} has no {key!r}; {did_you_mean(key, accepted)}")
    needed = [key for key, item in accepted.items() if item.default is inspect.Parameter.empty]
    for key in needed:
        if key not in options:
            raise CapeletError(f"the step {name!r} needs {key!r}")
    return known[name](**options)


def _map(options: Mapping[str, Any], folder: Path) -> Map:
    for key in options:
        if key not in ("file", "sha256"):
            raise CapeletError(
                f"the step 'map' has no {key!r}; {did_you_mean(key, ('file', 'sha256'))}"
            )
    if "file" not in options:
        raise CapeletError("the step 'map' needs 'file'")
    return Map.load(folder / str(options["file"]), options.get("sha256"))


def _encoder(options: Mapping[str, Any], folder: Path) -> Encoder:
    for key in options:
        if key not in ("name", "backend", "fingerprint"):
            raise CapeletError(
                f"the step 'encoder' has no {key!r}; {did_you_mean(key, ('name', 'backend'))}"
            )
    name, backend = str(options.get("name", "minilm")), str(options.get("backend", "auto"))
    encoder = load_own(folder, backend) if name == OWN else load(name, backend)
    wanted = options.get("fingerprint")
    if wanted is not None and wanted != encoder.fingerprint:
        raise CapeletError(
            f"the encoder {encoder.name!r} is not the one of the recipe (its fingerprint differs: "
            "other weights, back-end or versions); remove the fingerprint to accept it"
        )
    return encoder


def _flow(step: Encoder | Step) -> tuple[Kind, Kind]:
    return ("texts", "vectors") if isinstance(step, Encoder) else (step.consumes, step.emits)


def _guarantee(step: Encoder | Step) -> Guarantee | None:
    return None if isinstance(step, Encoder) else step.guarantee


def _name(step: Encoder | Step) -> str:
    return "encoder" if isinstance(step, Encoder) else str(step.describe()["step"])


def _describe(step: Encoder | Step) -> dict[str, Any]:
    if isinstance(step, Encoder):
        return {
            "step": "encoder",
            "name": step.name,
            "backend": step.backend,
            "fingerprint": step.fingerprint,
        }
    return step.describe()
