"""The steps of a private encoder: the encoder is one, and a recipe's entries become them.

Every step consumes texts or vectors and emits one of the two (`interfaces.Step`). An encoder is put
into an `EncoderStep`, so that whoever walks over steps need not ask which one it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from capelet import interfaces
from capelet.encoders import DEFAULT, load
from capelet.encoders.model_folder import ModelFolder
from capelet.encoders.own import OWN, load_own, origin_of, public_fingerprint
from capelet.errors import CapeletError, did_you_mean, name_field
from capelet.interfaces import Encoder, Kind, Progress, Step, Vectors, silent
from capelet.mechanisms import MECHANISMS
from capelet.mechanisms.sampling import NoiseStep, SeededStream
from capelet.mechanisms.specimens import SPECIMENS
from capelet.privacy.origins import Origin, same_name
from capelet.release.maps import Map


class EncoderStep:
    """Texts in, vectors out: the encoder as a step, which adds no noise and promises nothing."""

    consumes: Kind = "texts"
    emits: Kind = "vectors"
    guarantee: ClassVar[None] = None

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def describe(self) -> dict[str, Any]:
        """The step in a recipe; the last entry tells whether another encoder took the name.

        Of a public encoder it is the fingerprint; of one that learnt from somebody's texts a random
        id, for the recipe leaves with every release.
        """
        origin = origin_of(self.encoder)
        return {
            "step": "encoder",
            "name": self.encoder.name,
            "backend": self.encoder.backend,
            **({"fingerprint": public_fingerprint(self.encoder)} if origin is None else {}),
            **({"id": origin.id} if origin is not None else {}),
        }

    def __call__(self, batch: Sequence[str], progress: Progress = silent) -> Vectors:
        return self.encoder.encode(batch, progress)


def as_step(item: Encoder | Step) -> Step:
    """The step itself, or the step that an encoder is."""
    return EncoderStep(item) if isinstance(item, Encoder) else item


def draws(step: Step) -> bool:
    """Whether two calls of this step differ: it says so, or else it promises something.

    Word dropout draws and promises nothing by itself; a promise without a draw is broken.
    """
    return bool(getattr(step, "draws", step.guarantee is not None))


def encoder_step(steps: Iterable[Step]) -> EncoderStep | None:
    """The encoder among the steps; there is at most one, since nothing makes texts of vectors."""
    return next((step for step in steps if isinstance(step, EncoderStep)), None)


def isolates_rows(steps: Sequence[Step]) -> bool:
    """Whether what the last noise is added to is known to have no row that depends on another.

    Of Capelet's own steps and encoders tests say so, to the last bit. One that somebody else brings
    is taken to mix rows unless its class says `isolates_rows = True`; a step that makes a promise
    answers for itself, and what follows the last one is post-processing.
    """
    last = max((place for place, step in enumerate(steps) if step.guarantee is not None), default=0)
    return all(step.guarantee is not None or _isolates_rows(step) for step in steps[:last])


def _isolates_rows(step: Step) -> bool:
    return interfaces.isolates_rows(step.encoder if isinstance(step, EncoderStep) else step)


def outcomes(steps: Iterable[Step]) -> int | None:
    """How many values a released row can take, as the steps say; None where nothing bounds it.

    A function of few values takes no more of them, so that post-processing keeps the number. What
    draws, or lets rows of a call depend on each other, does not.

    >>> label = MECHANISMS["randomised-response"](epsilon=1, classes=3)
    >>> outcomes([label, MECHANISMS["projection"](8)]), outcomes([label, MECHANISMS["laplace"](1)])
    (3, None)
    """
    count: int | None = None
    for step in steps:
        kept = None if draws(step) or not _isolates_rows(step) else count
        bounds = [item for item in (kept, getattr(step, "outcomes", None)) if item is not None]
        count = min(bounds, default=None)
    return count


def origins_of(steps: Iterable[Step]) -> tuple[Origin, ...]:
    """Where everything among the steps comes from that was learnt; the same thing twice is one."""
    origins: dict[str, Origin] = {}
    for step in steps:
        if isinstance(step, EncoderStep):
            origin = origin_of(step.encoder)
        else:
            origin = step.origin if isinstance(step, Map) else None
        if origin is not None:
            origins.setdefault(origin.id, origin)
    return tuple(origins.values())


def map_encoder(steps: Iterable[Step], change: Callable[[Encoder], Encoder]) -> list[Step]:
    """The steps with another encoder in the place of theirs."""
    return [
        EncoderStep(change(step.encoder)) if isinstance(step, EncoderStep) else step
        for step in steps
    ]


def run(steps: Iterable[Step], batch: Any, progress: Progress = silent) -> Any:
    """A whole batch through all steps in order; only the encoder takes long enough to report."""
    for step in steps:
        batch = step(batch, progress) if isinstance(step, EncoderStep) else step(batch)
    return batch


def run_seeded(
    steps: Iterable[Step], batch: Any, seed: int, draw: str, progress: Progress = silent
) -> Any:
    """The same with noise from a seed; each step, and each draw, has a stream of its own.

    A step that promises something and cannot be handed a stream is refused: with noise of its own
    the study could not be repeated.
    """
    for place, step in enumerate(steps):
        if isinstance(step, EncoderStep):
            batch = step(batch, progress)
        elif isinstance(step, NoiseStep):
            batch = step.draw(batch, SeededStream(seed, draw, place))
        elif step.guarantee is None:
            batch = step(batch)
        else:
            raise CapeletError(
                f"the step {step.describe()['step']!r} draws noise of its own, which no seed can "
                "repeat; leave it out of the study"
            )
    return batch


def check_flow(steps: Sequence[Step]) -> None:
    """Refuse steps that do not fit each other, before anything runs."""
    flow: Kind | None = None
    for step in steps:
        if flow is not None and flow != step.consumes:
            raise CapeletError(
                f"the step {step.describe()['step']!r} consumes {step.consumes}, not {flow}; "
                "put text steps before the encoder and vector steps after it"
            )
        flow = step.emits
    if flow == "texts":
        raise CapeletError("the steps end in texts; an encoder is missing")


def with_own_files(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps, with a file name of its own for each map: folders put together share theirs."""
    ids: dict[str, str] = {}
    with_names: list[Step] = []
    for step in steps:
        if isinstance(step, Map):
            first, count = Path(step.file), 1
            # The same map twice is one file; another map of that name gets a number.
            while ids.setdefault(step.file, step.origin.id) != step.origin.id:
                count += 1
                step = step.with_file(f"{first.stem}-{count}{first.suffix}")
        with_names.append(step)
    return tuple(with_names)


# ---- from a recipe -------------------------------------------------------------------------------


def steps_of(
    recipe: Mapping[str, Any], folder: ModelFolder | None = None, *, specimens: bool = False
) -> list[Step]:
    """The steps that a recipe describes, with every key checked.

    Maps and an encoder of its own are files: they are read from `folder`, through its manifest, and
    refused without one.
    """
    if "seed" in recipe:
        raise CapeletError(
            "a recipe has only [[steps]]; it was given 'seed' too, as the recipe of a study is, "
            "whose noise promises nothing: take its steps without the seed"
        )
    unknown = sorted(set(recipe) - {"steps"})
    if unknown:
        raise CapeletError(f"a recipe has only [[steps]]; it was given {unknown[0]!r} too")
    entries = recipe.get("steps")
    if not isinstance(entries, list) or not entries:
        raise CapeletError("a recipe needs at least one [[steps]] entry, such as an encoder")
    return [_step(entry, folder, specimens) for entry in entries]


def _step(entry: Any, folder: ModelFolder | None, specimens: bool) -> Step:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("step"), str):
        raise CapeletError('each of the [[steps]] of a recipe needs a name: step = "laplace"')
    name = entry["step"]
    options = {key: value for key, value in entry.items() if key != "step"}
    if name == "encoder":
        return EncoderStep(_encoder(options, folder))
    if name == "map":
        return _map(options, folder)
    if name.startswith("specimen:") and not specimens:
        raise CapeletError(f"{name!r} is known to be broken and may not stand in a recipe")
    makers: dict[str, Callable[..., Step]] = dict(MECHANISMS)
    if specimens:
        makers |= {f"specimen:{key}": item for key, item in SPECIMENS.items()}
    if name not in makers:
        raise CapeletError(
            f"unknown step {name!r}; {did_you_mean(name, ['encoder', 'map', *makers])}"
        )
    # The constructor's signature is the list of keys, so that there is no second one to keep.
    signature = inspect.signature(makers[name]).parameters
    _check_keys(name, options, signature)
    for key, parameter in signature.items():
        if parameter.default is inspect.Parameter.empty and key not in options:
            raise CapeletError(f"the step {name!r} needs {key!r}")
    return makers[name](**options)


def _check_keys(step: str, options: Mapping[str, Any], keys: Iterable[str]) -> None:
    for key in options:
        if key not in keys:
            raise CapeletError(f"the step {step!r} has no {key!r}; {did_you_mean(key, keys)}")


def _map(options: Mapping[str, Any], folder: ModelFolder | None) -> Map:
    _check_keys("map", options, ("file", "id"))
    if "file" not in options:
        raise CapeletError("the step 'map' needs 'file'")
    file = str(options["file"])
    source = _needs_folder("a learnt map", folder)
    if "id" not in options:
        raise CapeletError("the step 'map' needs 'id'")
    own_map = Map.parse(source.read(file), source.path / file)
    _check_id(f"the map {file!r}", options, own_map.origin)
    return own_map


def _check_id(what: str, options: Mapping[str, Any], origin: Origin | None) -> None:
    """Refuse another training under the same name."""
    if "id" in options and (origin is None or options["id"] != origin.id):
        raise CapeletError(
            f"{what} is not the one of the recipe: its id differs; restore the folder, or train "
            "again"
        )


def _encoder(options: Mapping[str, Any], folder: ModelFolder | None) -> Encoder:
    _check_keys("encoder", options, ("name", "backend", "fingerprint", "id"))
    name, backend = str(options.get("name", DEFAULT)), str(options.get("backend", "auto"))
    if name == OWN:
        encoder = load_own(_needs_folder("an encoder of its own", folder), backend)
    else:
        encoder = load(name, backend)
    # Other weights under the same name would release vectors that nobody has measured.
    fingerprint = options.get("fingerprint")
    if fingerprint is not None and not same_name(str(fingerprint), encoder.fingerprint):
        raise CapeletError(
            f"the encoder {encoder.name!r} is not the one of the recipe (its fingerprint differs: "
            "other weights, back-end or versions); remove the fingerprint to accept it"
        )
    _check_id(f"the encoder {encoder.name!r}", options, origin_of(encoder))
    return encoder


def _needs_folder(what: str, folder: ModelFolder | None) -> ModelFolder:
    """Without a manifest nobody could tell whether ε and map are those that were measured."""
    if folder is None:
        raise CapeletError(
            f"the recipe names {what}, and there is no manifest beside it that says what belongs "
            "together; give the whole folder that `capelet protect` wrote, as in "
            f"{name_field('recipe', 'private/mails')}, or write one with "
            "PrivateEncoder(…).save(folder)"
        )
    return folder
