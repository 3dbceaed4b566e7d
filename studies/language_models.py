"""Which training remembers less: all methods at one perplexity, and along the way to it.

The protocol of the paper made strict. All methods train on the same rows with the same canaries,
and each training is measured at several perplexities on its way to its best one (`run`: one curve
for each method, strength and seed). `matched` reads the curves at one perplexity, a multiple of
plain training's best: every method is taken at its largest strength that comes within the
tolerance of it. Stops and strengths are chosen on validation rows, strengths on the first seed;
test perplexity and canaries have no say. A method that does not come near is shown as it is and
marked. (Mireshghallah et al. 2021 compare at several set perplexities too, above plain training's
best among them; "matched" ones differ by up to 35 % there.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.extraction import CHANCE_BITS, mean_by_author
from capelet.data.canaries import REPETITIONS, Canary, insert_canaries, make_canaries
from capelet.errors import DataError
from capelet.findings import Finding, Findings
from capelet.language.model import Network, Scorer, build, state_of
from capelet.language.training import Adversarial, Dpsgd, Method, Plain, Training, Triplet
from capelet.language.vocabulary import Codes, Samples, Tokens, Vocabulary, divide
from capelet.training.device import choose, wait_for
from capelet.workflows.language import attack_canaries

TOLERANCE = 0.03
"""Perplexities within this share of each other count as matched."""

PRIVATE = ("dpsgd", "dpsgd-loose")
BESIDE = "none, stopped where dpsgd ends"


@dataclass(frozen=True, eq=False)
class Prepared:
    """One seed's rows: vocabulary, canaries, samples to train on, validation and test."""

    vocabulary: Vocabulary
    canaries: tuple[Canary, ...]
    train: Samples
    validation: Tokens
    test: Samples
    seed: int


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A network on its way: after how many steps, its validation perplexity, its weights."""

    steps: int
    perplexity: float
    state: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """All snapshots of one training, and the mean seconds of its steps."""

    method: str
    strength: float
    snapshots: tuple[Snapshot, ...]
    seconds_per_step: float

    def curve(self, spacing: float, reach: float) -> tuple[Snapshot, ...]:
        """The best snapshot and, before it, one for each further share `spacing` of perplexity.

        Up to `reach` times the best. What comes after the best only learns its rows by heart.
        """
        kept = [min(self.snapshots, key=lambda item: item.perplexity)]
        for item in reversed([item for item in self.snapshots if item.steps < kept[0].steps]):
            far = item.perplexity >= kept[-1].perplexity * (1 + spacing)
            if far and item.perplexity <= reach * kept[0].perplexity:
                kept.append(item)
        return tuple(kept[::-1])


@dataclass(frozen=True)
class Comparison:
    """The sizes of a comparison: network, training, canaries and the strengths that are tried.

    The method `dpsgd-loose` is DP-SGD with so little noise (`loose_noise`) that it can come to the
    others' perplexity. Its ε is beyond all use: it shows what clipping does, and is never "DP".
    """

    kind: str = "lstm"
    vocabulary: int = 10_000
    width: int = 256
    layers: int = 2
    length: int = 20
    epochs: int = 10
    batch: int = 100
    rate: float = 1e-3
    repetitions: tuple[int, ...] = REPETITIONS
    per_level: int | None = None
    samples: int = 20_000
    snapshots_per_epoch: int = 4
    spacing: float = 0.03
    reach: float = 4.0
    device: str = "auto"
    strengths: Mapping[str, tuple[float, ...]] = field(
        default_factory=lambda: {"adversarial": (0.3, 1.0, 3.0), "triplet": (0.3, 1.0, 3.0)}
    )
    noise_multiplier: float = 1.0
    clip: float = 1.0
    private_epochs: int = 20
    private_batch: int = 1000
    private_rate: float = 2e-3
    methods: tuple[str, ...] = ("none", "adversarial", "triplet", "dpsgd")
    loose_noise: float = 0.02

    def prepare(self, texts: Sequence[str], authors: Sequence[str], seed: int) -> Prepared:
        """Divide the rows, read the vocabulary off the training rows, insert the canaries."""
        parts = divide(texts, seed)
        train, people = [texts[i] for i in parts.train], [authors[i] for i in parts.train]
        vocabulary = Vocabulary.of(train, self.vocabulary)
        canaries = make_canaries(
            people,
            vocabulary.canary_words(),
            self.repetitions,
            per_level=self.per_level,
            seed=seed,
        )
        rows, owners = insert_canaries(train, people, canaries)
        return Prepared(
            vocabulary,
            canaries,
            Samples.of(rows, owners, vocabulary, self.length),
            vocabulary.encode([texts[i] for i in parts.validation], self.length),
            Samples.of(
                [texts[i] for i in parts.test],
                [authors[i] for i in parts.test],
                vocabulary,
                self.length,
            ),
            seed,
        )

    def network(self, data: Prepared) -> Network:
        return build(
            self.kind, len(data.vocabulary), self.width, self.layers, self.length, data.seed
        )

    def method(self, name: str, strength: float, seed: int) -> Method:
        if name == "adversarial":
            return Adversarial(strength)
        if name == "triplet":
            return Triplet(strength)
        if name in PRIVATE:
            # A study: seeded, so that it can be repeated. What it makes carries no guarantee.
            return Dpsgd(strength, self.clip, seed_noise=seed)
        return Plain()

    def train(self, data: Prepared, name: str, strength: float = 0.0) -> Trajectory:
        """Train one method and keep snapshots: dense at first, then several in each epoch."""
        private = name == "dpsgd"
        batch = self.private_batch if private else self.batch
        plan = Training(
            self.method(name, strength, data.seed),
            self.private_epochs if private else self.epochs,
            batch,
            self.private_rate if private else self.rate,
            seed=data.seed,
            device=self.device,
            keep="last",
        )
        network = self.network(data)
        per_epoch = -(-len(data.train) // batch)
        every = max(1, per_epoch // self.snapshots_per_epoch)
        early = {int(step) for step in np.geomspace(5, per_epoch, 12)}
        total = plan.epochs * per_epoch
        kept: list[Snapshot] = []
        looking = 0.0

        def watch(steps: int, network: Network) -> None:
            nonlocal looking
            wanted = steps == total if private else steps % every == 0 or steps in early
            if wanted:
                wait_for(choose(self.device))
                began = time.perf_counter()
                perplexity = Scorer(network, self.device).perplexity(data.validation)
                network.train()
                kept.append(Snapshot(steps, perplexity, state_of(network)))
                looking += time.perf_counter() - began

        began = time.perf_counter()
        done = plan.fit(network, data.train, watch=watch)
        seconds = (time.perf_counter() - began - looking) / done.steps
        return Trajectory(name, strength, tuple(kept), seconds)

    def measure(self, data: Prepared, trajectory: Trajectory, snapshot: Snapshot) -> dict[str, Any]:
        """One row of results, ready for JSON: perplexities, canaries, authors, seconds."""
        network = self.network(data)
        network.load_state_dict(dict(snapshot.state))
        scorer = Scorer(network, self.device)
        found = attack_canaries(
            scorer, data.vocabulary, data.canaries, samples=self.samples, seed=data.seed
        )
        owners = [canary.author for canary in data.canaries]
        return {
            "method": trajectory.method,
            "strength": trajectory.strength,
            "seed": data.seed,
            "steps": snapshot.steps,
            "seconds_per_step": trajectory.seconds_per_step,
            "validation_perplexity": snapshot.perplexity,
            "test_perplexity": scorer.perplexity(data.test.tokens),
            "train_perplexity": scorer.perplexity(data.train.tokens[:4000]),
            "repetitions": found.repetitions.tolist(),
            "authors": owners,
            "bits": np.round(found.exposure.bits, 3).tolist(),
            "fitted": np.round(found.exposure.parametric_bits, 3).tolist(),
            "extrapolated": found.exposure.is_extrapolated.tolist(),
            "misfit": found.exposure.misfit,
            "space_bits": found.exposure.space_bits,
            "tab": found.completion.exact.tolist(),
            "by_size": sizes_and_perplexities(scorer, data),
        }

    def run(
        self,
        texts: Sequence[str],
        authors: Sequence[str],
        seeds: Sequence[int],
        done: Callable[[str, int], list[dict[str, Any]] | None] = lambda name, seed: None,
        keep: Callable[[str, int, list[dict[str, Any]]], None] = lambda name, seed, rows: None,
    ) -> list[dict[str, Any]]:
        """The curves of all methods, strengths and seeds: one row for each measured snapshot.

        `done` gives back kept rows of (method, seed), `keep` keeps them.
        """
        rows: list[dict[str, Any]] = []
        for seed in seeds:
            data = self.prepare(texts, authors, seed)
            for name in self.methods:
                found = done(name, seed)
                if found is None:
                    found = [
                        row
                        for strength in self.tried(name)
                        for row in self.curve(data, self.train(data, name, strength))
                    ]
                    keep(name, seed, found)
                rows += found
        return rows

    def tried(self, name: str) -> tuple[float, ...]:
        """The strengths of a method; for DP-SGD its noise."""
        private = {"dpsgd": self.noise_multiplier, "dpsgd-loose": self.loose_noise}
        if name in private:
            return (private[name],)
        return (0.0,) if name == "none" else tuple(sorted(self.strengths[name]))

    def curve(self, data: Prepared, trajectory: Trajectory) -> list[dict[str, Any]]:
        """What one training remembers at each perplexity on its way."""
        shots = trajectory.curve(self.spacing, self.reach)
        return [self.measure(data, trajectory, snapshot) for snapshot in shots]


def matched(
    rows: Sequence[Mapping[str, Any]], stop: float = 1.0, tolerance: float = TOLERANCE
) -> list[dict[str, Any]]:
    """Each method's row at `stop` times plain training's best validation perplexity, per seed.

    The strength is the largest that comes within the tolerance on the first seed. Beside a `dpsgd`
    that ends elsewhere, plain training stopped at the same perplexity is added.
    """
    chosen: dict[str, float] = {}
    made: list[dict[str, Any]] = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        mine = [row for row in rows if row["seed"] == seed]
        plain = [row for row in mine if row["method"] == "none"]
        if not plain:
            raise DataError("plain training sets the perplexity; run the method 'none' too")
        target = stop * min(row["validation_perplexity"] for row in plain)
        for name in dict.fromkeys(row["method"] for row in mine):
            curve = [row for row in mine if row["method"] == name]
            strength = chosen.setdefault(name, _strongest(curve, target, tolerance))
            found = _nearest([row for row in curve if row["strength"] == strength], target)
            made.append(_judged(found, name, target, tolerance))
            if name == "dpsgd" and not made[-1]["matched"]:
                there = _nearest(plain, found["validation_perplexity"])
                made.append(_judged(there, BESIDE, target, tolerance))
    return made


def _strongest(curve: Sequence[Mapping[str, Any]], target: float, tolerance: float) -> float:
    """The largest strength with a row within the tolerance; else that of the nearest row."""
    for strength in sorted({row["strength"] for row in curve}, reverse=True):
        row = _nearest([row for row in curve if row["strength"] == strength], target)
        # A little inside, since test perplexity will differ from that of the validation rows.
        if abs(row["validation_perplexity"] / target - 1) <= 0.7 * tolerance:
            return float(strength)
    return float(_nearest(curve, target)["strength"])


def _nearest(curve: Sequence[Mapping[str, Any]], target: float) -> Mapping[str, Any]:
    """The row whose validation perplexity is nearest, in ratio, to the target."""
    return min(curve, key=lambda row: abs(np.log(row["validation_perplexity"] / target)))


def _judged(row: Mapping[str, Any], name: str, target: float, tolerance: float) -> dict[str, Any]:
    near = abs(row["validation_perplexity"] / target - 1) <= tolerance
    return {**row, "method": name, "target": target, "matched": bool(near)}


def sizes_and_perplexities(scorer: Scorer, data: Prepared, each: int = 5) -> dict[str, float]:
    """Test perplexity of the `each` authors with most and with fewest training samples."""
    by_name = dict(zip(data.train.names, np.bincount(data.train.authors), strict=True))
    present = [name for name in data.test.names if name in by_name]
    order = sorted(present, key=lambda name: (by_name[name], name))
    number = {name: code for code, name in enumerate(data.test.names)}

    def perplexity(names: Sequence[str]) -> float:
        wanted = np.isin(data.test.authors, [number[name] for name in names])
        return scorer.perplexity(data.test.tokens[wanted])

    return {"largest": perplexity(order[-each:]), "smallest": perplexity(order[:each])}


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line per method of `matched` rows: means over seeds, intervals over authors."""
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        _, people = np.unique(np.concatenate([row["authors"] for row in mine]), return_inverse=True)
        levels = np.concatenate([row["repetitions"] for row in mine])
        columns = {
            "exposure": np.concatenate([row["bits"] for row in mine]),
            "tab": np.concatenate([row["tab"] for row in mine]).astype(float),
        }
        table.append(
            {
                "method": method,
                "seeds": len({row["seed"] for row in mine}),
                "strength": sorted({row["strength"] for row in mine}),
                "matched": all(row["matched"] for row in mine),
                **{
                    key: float(np.mean([row[key] for row in mine]))
                    for key in ("test_perplexity", "train_perplexity", "seconds_per_step")
                },
                "by_seed": [row["test_perplexity"] for row in mine],
                "largest": float(np.mean([row["by_size"]["largest"] for row in mine])),
                "smallest": float(np.mean([row["by_size"]["smallest"] for row in mine])),
                **{
                    name: {
                        int(level): _mean(values, people, levels == level)
                        for level in np.unique(levels)
                    }
                    for name, values in columns.items()
                },
            }
        )
    return table


def _mean(
    values: npt.NDArray[np.float64], people: Codes, inside: npt.NDArray[np.bool_]
) -> tuple[float, float, float]:
    return mean_by_author(values[inside], people[inside])


def findings_of(table: Sequence[Mapping[str, Any]], provenance: Mapping[str, Any]) -> Findings:
    """The summary as findings and curves, which a report is made from."""
    rows: list[Finding] = []
    for line in table:
        about = {"method": line["method"], "matched": line["matched"], "strength": line["strength"]}
        count = {"by_seed": line["by_seed"], **about}
        value = line["test_perplexity"]
        rows.append(Finding("utility", "next word", "perplexity", value, parameters=count))
        for size in ("largest", "smallest"):
            rows.append(
                Finding(
                    "fairness",
                    "next word",
                    "perplexity",
                    line[size],
                    subgroup=f"author size={size}",
                    parameters=about,
                )
            )
        for metric, column, attacker, chance in (
            ("exposure_bits", "exposure", "exposure", CHANCE_BITS),
            ("accuracy", "tab", "tab", 0.0),
        ):
            for level, (mean, low, high) in line[column].items():
                rows.append(
                    Finding(
                        "extraction" if int(level) else "extraction-null",
                        "canaries",
                        metric,
                        mean,
                        low,
                        high,
                        chance=chance,
                        attacker=attacker,
                        subgroup=f"repetitions={level}",
                        parameters={**about, "repetitions": int(level)},
                    )
                )
    plain = next((line for line in table if line["method"] == "none"), None)
    times = {
        line["method"]: line["seconds_per_step"] / plain["seconds_per_step"]
        for line in table
        if plain is not None
    }
    artefacts = {"training_time": times} if times else {}
    return Findings(tuple(rows), provenance, {}, artefacts)
