"""How a language model is trained: a method, epochs, batches, a seed; and where it is kept."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from capelet.errors import CapeletError, check_known
from capelet.interfaces import Progress, silent
from capelet.language.learners import learner_of
from capelet.language.matching import NearestState, perplexity_on
from capelet.language.methods import Dpsgd, Method, Plain, check_authors, check_settings
from capelet.language.model import Network
from capelet.language.vocabulary import Samples, Tokens
from capelet.training.checkpoint import Store
from capelet.training.loop import Listeners, StoppingRule, run

BATCHINGS = ("uniform", "author", "grouped")


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A trained network with one row of history per epoch."""

    network: Network
    history: tuple[dict[str, float], ...]
    steps: int


@dataclass(frozen=True)
class Training:
    """How to train: method, epochs, batches, rate, seed and device.

    `batching`: `uniform` mixes authors, `author` fills a batch from one author (the paper's), and
    `grouped` holds `per_author` samples of each of several authors, so that pairs of both kinds are
    in it. DP-SGD draws Poisson samples instead. `keep` is `best` (by validation perplexity) or
    `last`; DP-SGD always keeps the last, since choosing is not covered by its ε. With `perplexity`
    the weights nearest to that validation perplexity are kept, whatever the method: for studies.
    """

    method: Method = field(default_factory=Plain)
    epochs: int = 10
    batch: int = 100
    rate: float = 1e-3
    batching: str = "grouped"
    per_author: int = 10
    seed: int = 0
    device: str = "auto"
    keep: str = "best"
    perplexity: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "per_author"):
            if getattr(self, name) < 1:
                raise CapeletError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise CapeletError(f"rate is {self.rate:g}; it must be a finite number above 0")
        if self.perplexity is not None and not self.perplexity > 1:
            raise CapeletError(f"perplexity is {self.perplexity:g}; it must be above 1")
        check_known("batching", self.batching, BATCHINGS)
        check_settings(self.method)

    def fit(
        self,
        network: Network,
        samples: Samples,
        validation: Tokens | None = None,
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
        watch: Callable[[int, Network], None] | None = None,
        on_epoch: Callable[[dict[str, float]], None] | None = None,
        allow_single: bool = False,
    ) -> TrainedNetwork:
        """Train the network in place; `watch(step, network)` sees every step.

        With a `checkpoint` file, each epoch is kept there; a run that finds one goes on from it.
        `allow_single` is for authors of whom a division left one sample here.
        """
        check_authors(samples.authors, self.method, allow_single)
        learner = learner_of(self, network, samples, validation)
        plan = StoppingRule(
            self.epochs,
            restore_best=self.keep == "best"
            and self.perplexity is None
            and not isinstance(self.method, Dpsgd),
            advice="train again with a smaller rate or strength",
        )
        store = None
        if checkpoint is not None:
            store = Store.at(checkpoint, self.fingerprint(network, samples))
        nearest = self._nearest(learner.steps_per_epoch, validation, store)
        watchers = [] if watch is None else [watch]
        watchers += [] if nearest is None else [nearest.look]

        def on_step(step: int) -> None:
            for watcher in watchers:
                watcher(step, network)

        listeners = Listeners(progress, on_step if watchers else None, on_epoch)
        course = run(learner, plan, store, listeners)
        if nearest is not None:
            nearest.restore(network)
        return TrainedNetwork(network, tuple(course.history), course.steps)

    def _nearest(
        self, steps: int, validation: Tokens | None, store: Store | None
    ) -> NearestState | None:
        if self.perplexity is None:
            return None
        if validation is None or store is not None:
            raise CapeletError(
                "a set perplexity is looked for on validation rows, from the first step on; give "
                "them, and no checkpoint"
            )
        return NearestState(self.perplexity, steps, perplexity_on(validation, self.device))

    def fingerprint(self, network: Network, samples: Samples) -> str:
        """What must agree before a checkpoint may be continued; the number of epochs may grow."""
        settings = {**asdict(replace(self, epochs=1)), "network": network.kind, **network.sizes}
        # Never of a checkpoint: `_nearest` takes no store.
        del settings["perplexity"]
        # Little-endian on every machine: a checkpoint may be moved to another.
        data = hashlib.sha256(np.ascontiguousarray(samples.tokens, "<i8").tobytes())
        data.update(np.ascontiguousarray(samples.authors, "<i8").tobytes())
        return json.dumps({**settings, "data": data.hexdigest()}, sort_keys=True)
