"""Which training remembers less: all methods at one perplexity.

The protocol of the paper made strict. All methods train on the same rows with the same canaries.
The target is where plain training is best on validation rows; every other method is taken at its
largest strength that comes within the tolerance of it, chosen on validation rows. Test perplexity
and canaries are looked at only afterwards. A method that does not come near is shown as it is and
marked. (Mireshghallah et al. 2021; "matched" perplexities differ by up to 35 % there.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.attacks.extraction import CHANCE_BITS, mean_by_author
from capelet.canaries import REPETITIONS, Canary, insert_canaries, make_canaries
from capelet.findings import Finding, Findings
from capelet.language.model import Network, Scorer, build, state_of, wait_for
from capelet.language.training import Adversarial, Dpsgd, Method, Plain, Training, Triplet
from capelet.language.vocabulary import Codes, Samples, Tokens, Vocabulary, divide
from capelet.memorisation.attack import attack_canaries

TOLERANCE = 0.03
"""Perplexities within this share of each other count as matched."""

PRIVATE = ("dpsgd", "dpsgd-loose")
TRIED = ", tried"


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

    def best(self) -> Snapshot:
        return min(self.snapshots, key=lambda item: item.perplexity)

    def nearest(self, target: float) -> Snapshot:
        """The snapshot whose perplexity is nearest, in ratio, to the target."""
        return min(self.snapshots, key=lambda item: abs(np.log(item.perplexity / target)))


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
        early = {int(step) for step in np.geomspace(5, per_epoch, 12)} if name == "none" else set()
        total = plan.epochs * per_epoch
        kept: list[Snapshot] = []
        looking = 0.0

        def watch(steps: int, network: Network) -> None:
            nonlocal looking
            wanted = steps == total if private else steps % every == 0 or steps in early
            if wanted:
                wait_for(self.device)
                began = time.perf_counter()
                perplexity = Scorer(network, self.device).perplexity(data.validation)
                network.train()
                kept.append(Snapshot(steps, perplexity, state_of(network)))
                looking += time.perf_counter() - began

        began = time.perf_counter()
        done = plan.fit(network, data.train, watch=watch)
        seconds = (time.perf_counter() - began - looking) / done.steps
        return Trajectory(name, strength, tuple(kept), seconds)

    def measure(
        self, data: Prepared, trajectory: Trajectory, snapshot: Snapshot, target: float
    ) -> dict[str, Any]:
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
            "target": target,
            "test_perplexity": scorer.perplexity(data.test.tokens),
            "train_perplexity": scorer.perplexity(data.train.tokens[:4000]),
            "matched": abs(snapshot.perplexity / target - 1) <= TOLERANCE,
            "repetitions": found.repetitions.tolist(),
            "authors": owners,
            "bits": np.round(found.exposure.bits, 3).tolist(),
            "fitted": np.round(found.exposure.fitted, 3).tolist(),
            "extrapolated": found.exposure.extrapolated.tolist(),
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
        """All methods on all seeds; `done` gives back kept rows of (method, seed), `keep` keeps.

        The strengths are tried on the first seed; the others use the one chosen there.
        """
        rows: list[dict[str, Any]] = []
        chosen: dict[str, float] = {}
        for seed in seeds:
            data = self.prepare(texts, authors, seed)
            target = None
            for name in self.methods:
                found = done(name, seed)
                if found is None:
                    found = self._one(data, name, target, chosen)
                    keep(name, seed, found)
                rows += found
                target = found[0]["target"]
                chosen.setdefault(name, found[0]["strength"])
        return rows

    def _one(
        self, data: Prepared, name: str, target: float | None, chosen: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        if name == "none":
            plain = self.train(data, name)
            best = plain.best()
            rows = [self.measure(data, plain, best, best.perplexity)]
            # Plain training stopped early, for whoever ends at a higher perplexity.
            for share in (1.5, 2.0, 3.0, 4.0):
                early = plain.nearest(share * best.perplexity)
                row = self.measure(data, plain, early, best.perplexity)
                rows.append({**row, "method": f"none, stopped at {share:g} ×"})
            return rows
        assert target is not None
        if name == "dpsgd":
            private = self.train(data, name, self.noise_multiplier)
            return [self.measure(data, private, private.snapshots[-1], target)]
        asked = (self.loose_noise,) if name == "dpsgd-loose" else self.strengths[name]
        strengths = [chosen[name]] if name in chosen else sorted(asked)
        tried = [self.train(data, name, strength) for strength in strengths]
        pick, snapshot = strongest_match(tried, target)
        first = self.measure(data, pick, snapshot, target)
        others = [
            {**self.measure(data, item, item.nearest(target), target), "method": f"{name}{TRIED}"}
            for item in tried
            if item is not pick
        ]
        return [first, *others]


def strongest_match(tried: Sequence[Trajectory], target: float) -> tuple[Trajectory, Snapshot]:
    """The largest strength with a snapshot within the tolerance; else the nearest of all."""
    for item in sorted(tried, key=lambda item: -item.strength):
        snapshot = item.nearest(target)
        # A little inside, since test perplexity will differ from that of the validation rows.
        if abs(snapshot.perplexity / target - 1) <= 0.7 * TOLERANCE:
            return item, snapshot
    nearest = min(tried, key=lambda item: abs(np.log(item.nearest(target).perplexity / target)))
    return nearest, nearest.nearest(target)


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
    """One row per method: means over seeds with intervals over authors, per repetition level."""
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
        if line["method"].endswith(TRIED):
            continue
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
