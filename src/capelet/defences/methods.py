"""The table of methods: one record says what each one needs, keeps, fights, tunes and rewrites.

Nothing outside this table asks for a method's name to know what it can do. A new preset is one
line here, and the search, `protect`, the scikit-learn estimators and `capelet list` know it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from capelet.data.labels import Attribute
from capelet.defences.settings import (
    ADVERSARY_LOSSES,
    KEEPS,
    ORIGINAL_NOISE,
    SPECIMEN,
    Adversary,
    Defence,
    Fit,
    HeadShape,
    Part,
    Settings,
    epsilon_of,
)
from capelet.errors import CapeletError, DataError, check_known, did_you_mean, name_field
from capelet.interfaces import Progress, silent
from capelet.mechanisms.words import WordDropout, WordReplacement
from capelet.privacy.guarantees import check_count, check_number
from capelet.question import Network, Training, chosen


@dataclass(frozen=True)
class Tunable:
    """A setting that the search may choose, and for which `keeps` it matters.

    `values` are the ends of a range on a logarithmic scale, or a list to choose from.
    """

    setting: str
    values: tuple[float, float] | list[int]
    keeps: tuple[str, ...] = KEEPS


# Three decades around 1, at which the secrets weigh as much as the task.
LAMBDA = Tunable("adversary_weight", (0.03, 30.0))
# Odds of e^ε : 1 between two texts: below 1.6 : 1 nothing is served, above 10⁷ : 1 little is kept.
EPSILON = Tunable("epsilon", (0.5, 16.0))
# A map that keeps neighbours has the width of the encoder.
WIDTH = Tunable("width", [16, 32, 64, 128], keeps=("task",))


# Options that a method's training may read. The steps of a kernel adversary follow from the rows,
# and a closed form has none.
SCHEDULE = frozenset({"batch", "rate", "epochs"})
HEADS = frozenset({"head_units", "dropout"})
NETWORK = SCHEDULE | HEADS
# Noise before a dense map.
BEFORE_MAP = ("laplace", ORIGINAL_NOISE)


@dataclass(frozen=True)
class Method:
    """What a method does, and what it can do.

    - `needs`: of "label", "private", "epsilon" and "texts", what it cannot do without.
    - `keeps`: what it can be asked to keep; `label_for`: for which of these it needs a label.
    - `fights`: whether its training looks at the secrets: never, always, or while λ is not 0.
    - `noise`: what its ε is spent on, vectors or words; "none" without an ε.
    - `tunes`: what the search may choose, in the order in which it draws.
    - `layers`: whether the encoder's last layers can be trained along.
    - `private_training`: whether it can be trained with differential privacy, for a task: each
      row's loss must depend on that row alone.
    - `rewrites`: the steps that texts go through before the encoder.
    - `weighs`: for which `keeps` each attribute may have a λ of its own.
    - `mechanisms`: the noise that may be asked for by name; specimens are for studies alone.
    - `weight`: its λ where none is chosen.
    - `options`: of what a user may choose beside these, what its training reads: `HEADS`,
      `SCHEDULE`, "adversary_loss", "table", "table_size".
    """

    summary: str
    fit: Fit
    needs: frozenset[str]
    keeps: tuple[str, ...] = ("task",)
    label_for: tuple[str, ...] = ("task", "both")
    fights: Literal["never", "by lambda", "always"] = "never"
    noise: Literal["none", "vectors", "words"] = "none"
    tunes: tuple[Tunable, ...] = ()
    layers: bool = False
    private_training: bool = False
    rewrites: Callable[[Settings], tuple[Any, ...]] | None = None
    weighs: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    weight: float = 1.0

    @property
    def on_vectors(self) -> bool:
        """Whether vectors alone will do: it neither reads nor rewrites texts."""
        return self.rewrites is None and "texts" not in self.needs

    def complete(self, settings: Settings, secrets: Iterable[str] = ()) -> Settings:
        """The settings with the values of this method for what nobody chose.

        Where a weight is chosen for some of the secrets, the others have the method's own.
        """
        weight = settings.adversary_weight
        if weight is None:
            weight = self.weight
        elif isinstance(weight, Mapping):
            weight = {**dict.fromkeys(secrets, self.weight), **weight}
        return replace(settings, adversary_weight=weight, width=settings.units)

    def needs_for(self, keep: str) -> frozenset[str]:
        """What it cannot do without when it is asked to keep this."""
        return self.needs | {"label"} if keep in self.label_for else self.needs

    def fights_with(self, settings: Settings) -> bool:
        """Whether a training with these settings looks at the secrets at all."""
        return self.fights == "always" or (self.fights == "by lambda" and settings.fights)

    def text_steps(self, settings: Settings) -> tuple[Any, ...]:
        """The steps that texts go through before the encoder."""
        return () if self.rewrites is None else self.rewrites(settings)

    def space(self, keep: str) -> dict[str, Any]:
        """What the search may choose while this is kept: (low, high) or a list, by setting."""
        return {item.setting: item.values for item in self.tunes if keep in item.keeps}


# What trains a map needs torch, which takes a second to import: `capelet list` and every --help
# read this table, so the families of methods are imported where they are fitted.


def _dense(noise: bool = False, adversary: Adversary = "none") -> Fit:
    """A dense map, with noise before it or not, against one kind of adversary."""

    def fit_dense(
        part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
    ) -> Defence:
        from capelet.defences.dense import Dense

        return Dense(noise, adversary)(part, settings, checkpoints, progress)

    return fit_dense


def _later(module: str, function: str) -> Fit:
    """A fit function of a module of this room, which is imported at the first fit."""

    def fit_later(
        part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
    ) -> Defence:
        fit_function: Fit = getattr(import_module(f"capelet.defences.{module}"), function)
        return fit_function(part, settings, checkpoints, progress)

    return fit_later


READER_ERASURE = ("reader_erasure", "fit_reader_erasure")


def _blind(part: Part, settings: Settings, checkpoints: Path | None, progress: Progress) -> Defence:
    """For a task a narrow map against a kernel adversary; else erasure of what readers look at.

    A map as wide as its input that only bends vectors could be walked back.
    """
    is_narrow = settings.keep == "task"
    fit_map = _dense(adversary="kernel") if is_narrow else _later(*READER_ERASURE)
    return fit_map(part, settings, checkpoints, progress)


def _replace_words(settings: Settings) -> tuple[Any, ...]:
    table, size = settings.table, settings.table_size
    return (WordReplacement(epsilon_of(settings), table=table, size=size),)


def _drop_words(settings: Settings) -> tuple[Any, ...]:
    # μ = 0 is DPNR without its dropout, a row of its tables: no step, and no gain for words.
    return (WordDropout(settings.word_dropout),) if settings.word_dropout else ()


METHODS: dict[str, Method] = {
    "fx": Method(
        "A task map without privacy: what the others are compared with.",
        _dense(),
        needs=frozenset({"label"}),
        tunes=(WIDTH,),
        layers=True,
        private_training=True,
        options=NETWORK,
    ),
    "ae": Method(
        "An auto-encoder of the texts in place of the encoder, then a task map without privacy.",
        _later("autoencoder", "fit_autoencoder"),
        needs=frozenset({"label", "texts"}),
        tunes=(WIDTH,),
        options=NETWORK,
    ),
    "gr": Method(
        "Gradient reversal: a joint adversary for each secret.",
        _dense(adversary="reversal"),
        needs=frozenset({"private"}),
        keeps=KEEPS,
        fights="by lambda",
        tunes=(LAMBDA, WIDTH),
        layers=True,
        private_training=True,
        weighs=KEEPS,
        options=NETWORK | {"adversary_loss"},
    ),
    "gr+": Method(
        "A fresh kernel adversary in every step; for neighbours, erasure of what readers look at.",
        _blind,
        needs=frozenset({"private"}),
        keeps=KEEPS,
        fights="by lambda",
        tunes=(LAMBDA, WIDTH),
        layers=True,
        weighs=("task",),  # erasure takes whole directions, whichever secret they tell
        options=HEADS | {"rate"},
    ),
    "cgt": Method(
        "Cross-gradient training: each side learns on the other's perturbation.",
        _dense(adversary="cross"),
        needs=frozenset({"label", "private"}),
        fights="always",  # its strength is the length of the perturbation, not λ
        tunes=(WIDTH,),
        options=NETWORK,
    ),
    "leace": Method(
        "Linear erasure in closed form; stops linear attackers only.",
        _later("erasure", "fit_erasure"),
        needs=frozenset({"private"}),
        keeps=KEEPS,
        label_for=("both",),  # the least change of the vectors keeps any task, labelled or not
        fights="always",
    ),
    "ldp": Method(
        "Laplace noise on the vector, then a task map.",
        _dense(noise=True),
        needs=frozenset({"label", "epsilon"}),
        noise="vectors",
        tunes=(EPSILON, WIDTH),
        layers=True,
        private_training=True,
        mechanisms=BEFORE_MAP,
        options=NETWORK,
    ),
    "cape": Method(
        "Laplace noise on the vector, then a map trained with reversal.",
        _dense(noise=True, adversary="reversal"),
        needs=frozenset({"label", "private", "epsilon"}),
        fights="by lambda",
        noise="vectors",
        tunes=(LAMBDA, EPSILON, WIDTH),
        layers=True,
        private_training=True,
        weighs=("task",),
        mechanisms=BEFORE_MAP,
        options=NETWORK | {"adversary_loss"},
    ),
    "mdp": Method(
        "Words replaced under metric privacy, then a task map.",
        _dense(),
        needs=frozenset({"label", "epsilon"}),
        noise="words",
        tunes=(WIDTH,),  # not ε: every trial would have to rewrite and encode all texts
        rewrites=_replace_words,
        options=NETWORK | {"table", "table_size"},
    ),
    "dpnr": Method(
        "Words dropped, Laplace noise on the vector, then a task map trained through the noise.",
        _dense(noise=True),
        needs=frozenset({"label", "epsilon"}),
        noise="vectors",
        tunes=(EPSILON, WIDTH),
        layers=True,
        rewrites=_drop_words,
        mechanisms=BEFORE_MAP,
        options=NETWORK,
    ),
    "bottleneck": Method(
        "A learnt bottleneck before the noise: useful at a real ε.",
        _later("bottleneck", "fit_bottleneck"),
        needs=frozenset({"label", "epsilon"}),
        fights="by lambda",
        noise="vectors",
        tunes=(LAMBDA, EPSILON),
        private_training=True,
        mechanisms=("response", "laplace", "privunit"),
        weight=0.0,
        weighs=("task",),
        options=SCHEDULE,
    ),
}


def method(name: str) -> Method:
    """The method of this name."""
    check_known("method", name, METHODS)
    return METHODS[name]


def check_needs(
    name: str, settings: Settings, task: Attribute | None, secrets: Sequence[Attribute]
) -> Method:
    """The method, if it has what it needs; otherwise an error that says what is missing."""
    record = method(name)
    if settings.keep not in KEEPS:
        hint = did_you_mean(str(settings.keep), KEEPS)
        raise CapeletError(f"keep is {settings.keep!r}; {hint}")
    needs = record.needs_for(settings.keep)
    if "label" in needs and task is None:
        other = "neighbours" in record.keeps
        hint = f", or keep neighbours instead: {name_field('keep', 'neighbours')}" if other else ""
        raise DataError(
            f"the method {name!r} keeps a task, and there is no label; name its column with "
            f"{name_field('label')}{hint}"
        )
    if settings.keep not in record.keeps:
        free = ", ".join(key for key, item in METHODS.items() if settings.keep in item.keeps)
        raise CapeletError(f"the method {name!r} keeps a task; neighbours are kept by {free}")
    if "private" in needs and not secrets:
        raise DataError(
            f"the method {name!r} needs a private attribute to protect: {name_field('private')}"
        )
    _check_numbers(name, record, settings)
    return record


def _check_numbers(name: str, record: Method, settings: Settings) -> None:
    if "epsilon" in record.needs:
        epsilon_of(settings)
    elif settings.epsilon is not None:
        noisy = _names(METHODS, lambda item: "epsilon" in item.needs)
        raise CapeletError(
            f"the method {name!r} adds no noise and takes no epsilon; those that do are {noisy}"
        )
    if settings.tune_layers and (not record.layers or settings.keep != "task"):
        raise CapeletError(
            "layers of the encoder are trained along with a map that keeps a task, by "
            f"{_names(METHODS, lambda item: item.layers)}; leave {name_field('tune_layers')} out"
        )
    check_number("adversary_weight", settings.lam, 0.0, 1e6)
    check_mechanism(name, settings)
    check_count("width", settings.units)
    check_number("word_dropout", settings.word_dropout, 0.0, 1.0 - 2.0**-53)
    _check_fight(name, record, settings)
    check_private_training(name, settings)


def _check_fight(name: str, record: Method, settings: Settings) -> None:
    """Refuse ways to fight, and heads, that this method's training would not read."""
    for attribute, lam in settings.lambdas.items():
        check_number(f"the adversary_weight of {attribute!r}", lam, 0.0, 1e6)
    if settings.lambdas and settings.keep not in record.weighs:
        able = _names(METHODS, lambda item: settings.keep in item.weighs)
        raise CapeletError(
            f"the method {name!r} has one weight for all attributes; one for each is read by "
            f"{able}: give {name_field('adversary_weight')} as one number"
        )
    if settings.adversary_loss not in ADVERSARY_LOSSES:
        hint = did_you_mean(str(settings.adversary_loss), ADVERSARY_LOSSES)
        raise CapeletError(f"the adversary loss is {settings.adversary_loss!r}; {hint}")
    options = {"adversary_loss"} if settings.adversary_loss != "reversal" else set()
    if settings.heads != HeadShape():
        options |= HEADS
    check_options(name, options)


def check_options(name: str, options: Collection[str]) -> None:
    """Refuse options, by their names, that the training of this method does not read."""
    record = method(name)
    for option in sorted(options):
        if option not in record.options:
            able = ", ".join(key for key, item in METHODS.items() if option in item.options)
            rest = f"; those that do are {able}" if able else ""
            raise CapeletError(f"the method {name!r} does not read {name_field(option)}{rest}")


def check_choices(name: str, training: Training, network: Network) -> None:
    """Refuse what was chosen and is not read; a preset's values are no such wish."""
    names = set(chosen(training)) & {"table", "table_size"} | set(chosen(network)) & NETWORK
    if training.train_epsilon is not None and names & SCHEDULE:
        fields = [name_field(field) for field in ("batch", "rate", "epochs")]
        raise CapeletError(
            "a private training has a schedule of its own, for which its noise is reckoned; leave "
            f"{fields[0]}, {fields[1]} and {fields[2]} out"
        )
    check_options(name, names)


def check_mechanism(name: str, settings: Settings) -> None:
    """Refuse noise, by its name, that this method does not have."""
    names = ("auto", *method(name).mechanisms)
    if settings.mechanism not in names:
        hint = did_you_mean(str(settings.mechanism), names)
        raise CapeletError(f"the method {name!r} has no mechanism {settings.mechanism!r}; {hint}")


def check_attributes(settings: Settings, names: Sequence[str]) -> None:
    """Refuse a λ of something that is no private attribute of this training."""
    for name in settings.lambdas:
        if name not in names:
            raise DataError(
                f"{name_field('adversary_weight')} names {name!r}, which training does not fight; "
                f"{did_you_mean(name, names)}"
            )


def check_private_training(name: str, settings: Settings) -> None:
    """Refuse what DP-SGD cannot cover, before anything is read or encoded."""
    if settings.training is None:
        return
    if not method(name).private_training:
        raise CapeletError(
            f"the method {name!r} cannot be trained with differential privacy: in its training one "
            f"text moves others; leave {name_field('train_epsilon')} out, or take "
            f"{_names(METHODS, lambda item: item.private_training)}"
        )
    is_bottleneck = name == "bottleneck"
    obstacles = {
        f"a private training keeps a task; leave {name_field('keep')} out": settings.keep != "task",
        "the encoder cannot be trained with differential privacy; leave "
        f"{name_field('tune_layers')} out": (settings.tune_layers > 0),
        "a private bottleneck fights no secrets, whose shares are taken over all texts at once; "
        f"leave {name_field('adversary_weight')} out": is_bottleneck and settings.fights,
        "a private training clips the gradient of each text, which dropout and a bounded adversary "
        f"would take twice; leave {name_field('dropout')} and {name_field('adversary_loss')} out": (
            settings.heads.dropout > 0 or settings.adversary_loss != "reversal"
        ),
        "a specimen's noise is no private training's; leave the mechanism out": (
            settings.mechanism.startswith(SPECIMEN)
        ),
        "a private bottleneck has one symbol for each class; leave the mechanism out": (
            is_bottleneck and settings.mechanism not in ("auto", "response")
        ),
    }
    for sentence, applies in obstacles.items():
        if applies:
            raise CapeletError(sentence)


def _names(methods: Mapping[str, Method], can: Callable[[Method], bool]) -> str:
    return ", ".join(name for name, item in methods.items() if can(item))


def fit(
    name: str,
    part: Part,
    settings: Settings,
    checkpoints: Path | None = None,
    progress: Progress = silent,
) -> Defence:
    """Fit a method on the defender's part, after checking that it has what it needs.

    A training that is killed goes on from its last checkpoint in the folder `checkpoints`.
    """
    record = check_needs(name, settings, part.task, part.secrets)
    choice = record.complete(settings, [item.name for item in part.secrets])
    return record.fit(part, choice, checkpoints, progress)
