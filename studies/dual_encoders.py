"""Dual encoders over λ: what fresh attackers read of words and writers, and what it costs.

    python studies/dual_encoders.py --points 0:0,1.5:3,3:10,10:30 --out dual.jsonl

Encoders learn from six tenths of the posts of `blog_authors` and all of `blog`. Victims and
auxiliary sentences come from the rest, writers are told apart by other posts of theirs, utility is
that of `capelet dual utility`. Each line of the file is one encoder; a second run makes only what
is missing. At full size this is work for a GPU (a minute or two for each point); on a CPU try
`--share 0.03 --width 64 --epochs 1`; `--most`, `--attack-epochs` and `--tasks` are the attackers'
and the tasks' share of the work. Claim: at some λ words fall by a quarter, writers by a half,
utility by 3 points.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from capelet.attacks.authorship import Authorship, LinearProbe, Shots
from capelet.attacks.inversion.blackbox import MultiLabel, MultiSet
from capelet.attacks.inversion.words import Vocabulary, compare, most_frequent
from capelet.data.datasets import load
from capelet.data.text import words_of
from capelet.defences.contrastive import Contrastive, Pairs, Sentences
from capelet.encoders import WordVectorEncoder
from capelet.evaluation.sentences import TASKS, SentenceTask, measure_all
from capelet.training.networks import dense
from pictures import Panel, draw_panels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEAN = "utility sentences"
ATTACKERS = {"width": 1024, "depth": 2, "batch": 1024 if DEVICE == "cuda" else 128}


@dataclass(frozen=True)
class Size:
    """How much the attackers get, and what utility is measured on."""

    auxiliary: int = 130_000
    victims: int = 3000
    epochs: int = 12
    tasks: tuple[str, ...] = TASKS


@dataclass(frozen=True, eq=False)
class Texts:
    """Who learns from what: nothing that is attacked was learnt from."""

    train: Sentences
    held: Sentences
    auxiliary: list[str]
    victims: list[str]
    asked: np.ndarray[Any, Any]  # of the held sentences, one of each post

    @classmethod
    def draw(cls, share: float, seed: int, size: Size) -> Texts:
        own, other = (_sentences(name, share) for name in ("blog_authors", "blog"))
        random = np.random.default_rng(seed)
        posts = random.permutation(np.unique(own.posts))
        far = np.isin(own.posts, posts[: int(0.4 * len(posts))])
        train = Sentences(
            tuple(np.array(own.texts, dtype=object)[~far]) + other.texts,
            np.concatenate([own.posts[~far], other.posts + 10_000_000]),
            np.concatenate([own.authors[~far], other.authors]),
        )
        held = Sentences(
            tuple(np.array(own.texts, dtype=object)[far]), own.posts[far], own.authors[far]
        )
        sizes = np.array([len(words_of(text)) for text in held.texts])
        able = np.flatnonzero((sizes >= 5) & (sizes <= 20))
        some = random.permutation(np.unique(held.posts[able]))
        near = np.isin(held.posts[able], some[: len(some) // 6])
        victims = [held.texts[row] for row in random.permutation(able[near])[: size.victims]]
        of_victims = {" ".join(words_of(text)) for text in victims}
        texts = [held.texts[row] for row in able[~near]]
        texts += [text for text in other.texts if 5 <= len(words_of(text)) <= 20]
        texts = [text for text in texts if " ".join(words_of(text)) not in of_victims]
        auxiliary = [texts[row] for row in random.permutation(len(texts))[: size.auxiliary]]
        order = random.permutation(len(held))
        order = order[sizes[order] >= 5]
        asked = order[np.unique(held.posts[order], return_index=True)[1]]
        return cls(train, held, auxiliary, victims, np.sort(asked))


def _sentences(name: str, share: float) -> Sentences:
    corpus = load(name)
    assert corpus.texts is not None and corpus.author is not None
    names = np.unique(corpus.author.astype(str))
    few = names[: max(3, round(share * len(names)))]
    rows = np.flatnonzero(np.isin(corpus.author.astype(str), few))
    texts = [str(corpus.texts[row]).lower().replace("&nbsp;", " ") for row in rows]
    return Sentences.of(texts, list(corpus.author[rows]), 3, 30, fewest=50)


@dataclass(frozen=True)
class Perceptron:
    """One hidden layer on the few labelled vectors, beside the linear probe."""

    name: str = "mlp"

    def scores(self, vectors: Any, shots: Shots, codes: Any) -> Any:
        known = torch.from_numpy(np.asarray(vectors[shots.training], dtype=np.float32)).to(DEVICE)
        asked = torch.from_numpy(np.asarray(vectors[shots.test], dtype=np.float32)).to(DEVICE)
        middle, spread = known.mean(dim=0), known.std(dim=0).clamp(min=1e-6)
        truth = torch.from_numpy(codes[shots.training].astype(np.int64)).to(DEVICE)
        torch.manual_seed(0)
        body = dense([known.shape[1], 512, shots.writers])
        network = nn.Sequential(nn.Dropout(0.3), body).to(DEVICE)
        optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
        for _ in range(40):
            for rows in torch.split(torch.randperm(len(truth), device=DEVICE), 256):
                given = (known[rows] - middle) / spread
                loss = nn.functional.cross_entropy(network(given), truth[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        with torch.inference_mode():
            return network.eval()((asked - middle) / spread).double().cpu().numpy()


def attack(texts: Texts, encode: Callable[[Any], Any], size: Size) -> dict[str, Any]:
    """Words, writers and utility of one encoder, each by fresh learners."""
    vocabulary = Vocabulary.of(texts.auxiliary, most=15_000)
    sets, truth = vocabulary.sets(texts.auxiliary), vocabulary.sets(texts.victims)
    own, seen = encode(texts.auxiliary), encode(texts.victims)
    words = len(vocabulary)
    blind = most_frequent(sets.take(np.arange(min(2000, len(sets)))), words, len(truth))
    scores: dict[str, Any] = {"blind": float(compare(blind, truth, words).f1.mean())}
    # At full size 10 epochs against 12.
    fewer = max(1, size.epochs - size.epochs // 6)
    for reader in (
        MultiLabel(**ATTACKERS, epochs=fewer),
        MultiSet(**ATTACKERS, epochs=size.epochs),
    ):
        guess = reader.fit(own, sets, vocabulary).predict(seen)
        scores[reader.name] = float(compare(guess, truth, words).f1.mean())
    vectors = encode(texts.held.texts)
    posts, place = np.unique(texts.held.posts, return_inverse=True)
    means = np.zeros((len(posts), vectors.shape[1]))
    np.add.at(means, place, vectors)
    means /= np.bincount(place)[:, None]
    writer = texts.held.authors[np.unique(texts.held.posts, return_index=True)[1]]
    for what, given, authors, shots in (
        ("sentences", vectors[texts.asked], texts.held.authors[texts.asked], 50),
        ("posts", means, writer, 10),
    ):
        for probe in (LinearProbe(), Perceptron()):
            few = Authorship(shots=shots, writers=100, tests=40, seeds=2, probe=probe)
            rows = few.measure(given[authors >= 0], authors[authors >= 0].tolist())
            row = next(row for row in rows if (row.kind, row.metric) == ("authorship", "top5"))
            scores[f"{what} {probe.name}"] = row.value
    for row in measure_all(encode, [SentenceTask.load(name) for name in size.tasks]):
        scores[f"utility {row.target}"] = row.value
    if MEAN not in scores:  # it is of four tasks; of fewer it is their own
        scores[MEAN] = float(np.mean([scores[f"utility {name}"] for name in size.tasks]))
    return scores


def row_of(found: dict[str, Any], plain: dict[str, Any]) -> str:
    def best(item: dict[str, Any], *names: str) -> float:
        return max(float(item[name]) for name in names)

    cells = [f"{found['words']:g}", f"{found['authors']:g}", found["negatives"]]
    for names in (
        ("multi-label", "multi-set"),
        ("sentences linear", "sentences mlp"),
        ("posts linear", "posts mlp"),
    ):
        here, there = best(found, *names), best(plain, *names)
        cells += [f"{here:.3f}", f"{100 * (here / there - 1):+.0f} %"]
    cost = 100 * (found[MEAN] - plain[MEAN])
    return " | ".join([*cells, f"{found[MEAN]:.3f}", f"{cost:+.1f}"])


def show(made: list[dict[str, Any]]) -> None:
    """A table in Markdown for each network; the first row is the one trained against nothing."""
    for network in dict.fromkeys(item["network"] for item in made):
        rows = [item for item in made if item["network"] == network]
        rows.sort(key=lambda item: (item["negatives"], item["words"], item["authors"]))
        plain = [item for item in rows if not item["words"] and not item["authors"]]
        if plain:
            columns = "λ_w | λ_s | negatives | words F1 | | top-5, 50 sentences | | top-5, 10 posts"
            print(f"\n{network}\n\n| {columns} | | utility | points |\n|" + "---|" * 11)
            for item in rows:
                print(f"| {row_of(item, plain[0])} |")


def panels(made: list[dict[str, Any]]) -> list[Panel]:
    """What is read and what it costs, over λ; the encoders should lie on one line of λ."""
    line = sorted((item["words"], item["authors"], place) for place, item in enumerate(made))
    some = [(words, made[place]) for words, _, place in line]
    across = f"λ_w (with λ_s {', '.join(f'{authors:g}' for _, authors, _ in line)})"

    def of(*names: str) -> list[tuple[float, float]]:
        return [(words, max(item[name] for name in names)) for words, item in some]

    useful = of(MEAN)
    writers = {
        "50 sentences": of("sentences linear", "sentences mlp"),
        "10 posts": of("posts linear", "posts mlp"),
    }
    blind = {"the most frequent words": made[0]["blind"]}
    limit = {"3 points below λ = 0": useful[0][1] - 0.03}
    return [
        Panel("words read", across, "F1", {"words": of("multi-label", "multi-set")}, blind),
        Panel("writers named", across, "top-5 of 100 writers", writers, {"chance": 0.05}),
        Panel("utility", across, "mean accuracy", {"utility": useful}, limit),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", default="0:0,1.5:0,0:3,0.5:1,1.5:3,3:10,10:30", help="λ_w:λ_s")
    parser.add_argument("--network", default="transformer", choices=["transformer", "lstm"])
    parser.add_argument("--negatives", default="author", choices=["any", "author"])
    parser.add_argument("--width", type=int, help="384, or 600 for lstm")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of the writers")
    parser.add_argument("--most", type=int, default=Size.auxiliary, help="auxiliary sentences")
    parser.add_argument("--attack-epochs", type=int, default=Size.epochs)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="an SVG file to write, of one row of points")
    parser.add_argument("--out", type=Path, default=Path("dual.jsonl"))
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.is_file() else []
    rows = [json.loads(line) for line in lines]
    victims = min(Size.victims, arguments.most)
    size = Size(arguments.most, victims, arguments.attack_epochs, tuple(arguments.tasks))
    texts = Texts.draw(arguments.share, arguments.seed, size)
    pairs = Pairs.of(texts.train, 20_000, 64)
    start = WordVectorEncoder().token_table()
    for job in jobs_of(arguments):
        if any(job.items() <= row.items() for row in rows):
            continue
        clock = time.monotonic()
        training = Contrastive(
            network=job["network"],
            width=arguments.width or (600 if job["network"] == "lstm" else 384),
            epochs=arguments.epochs,
            lambda_words=job["words"],
            lambda_authors=job["authors"],
            negatives=job["negatives"],
            seed=job["seed"],
        )
        dual = training.fit_pairs(pairs, start)
        scores = attack(texts, lambda some, dual=dual: dual.encode(list(some)), size)
        rows.append(job | scores | {"seconds": round(time.monotonic() - clock, 1)})
        with arguments.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(job, f"{rows[-1]['seconds']} s", flush=True)
    show(rows)
    if arguments.picture:
        arguments.picture.write_text(draw_panels(panels(rows)))


def jobs_of(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """One encoder for each point; what was made of the same job before is not made again."""
    points = [tuple(map(float, point.split(":"))) for point in arguments.points.split(",")]
    return [
        {
            "network": arguments.network,
            "negatives": arguments.negatives if authors else "any",
            "words": words,
            "authors": authors,
            "seed": arguments.seed,
        }
        for words, authors in points
    ]


if __name__ == "__main__":
    main()
