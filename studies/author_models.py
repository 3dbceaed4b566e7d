"""A language model that promises something to whole authors, beside one that does to single texts.

    CAPELET_DATA=… python studies/author_models.py --out author_models.jsonl

trains three models on the sentences of the set `blog` (4,041 authors), with the same canaries and a
public vocabulary: `none`, DP-SGD for each text, and DP-SGD for each author, both with ε ≤ 8 and
δ = 10⁻⁵. It prints one row each, as in the card: perplexity, exposure for each number of
repetitions and the tab attack. Noise comes from the operating system, as in `capelet lm train`, so
no run repeats another. What is in the file is not trained again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capelet.attacks.extraction import mean_by_author
from capelet.data.datasets import load
from capelet.data.text import sentences, words_and_signs
from capelet.language.model import Scorer
from capelet.workflows.language import (
    CanarySettings,
    LanguageSettings,
    MethodSettings,
    NetworkSettings,
    ScheduleSettings,
    attack_canaries,
    train_model,
)

# What each row trains: the method, and the unit of its promise.
ROWS = {"none": ("none", "record"), "text": ("dpsgd", "record"), "author": ("dpsgd", "author")}
# A shorter sentence is mostly a greeting or a list.
LEAST_WORDS = 5


def blog_sentences(writers: int) -> tuple[list[str], list[str]]:
    """All sentences of so many authors (0: of all), with whose they are."""
    corpus = load("blog")
    assert corpus.texts is not None and corpus.author is not None
    people = set(sorted(set(corpus.author))[: writers or None])
    texts, authors = [], []
    for text, author in zip(corpus.texts, corpus.author, strict=True):
        if author not in people:
            continue
        for sentence in sentences(text):
            if len(words_and_signs(sentence)) >= LEAST_WORDS:
                texts.append(sentence)
                authors.append(str(author))
    return texts, authors


def settings_of(row: str, arguments: argparse.Namespace) -> LanguageSettings:
    """What `capelet lm train` would be told."""
    method, unit = ROWS[row]
    is_private, by_author = method == "dpsgd", unit == "author"
    epochs = {"none": arguments.epochs, "text": arguments.text_epochs}
    batches = {"none": 100, "text": arguments.text_batch, "author": arguments.author_batch}
    return LanguageSettings(
        NetworkSettings(
            arguments.network,
            arguments.vocabulary,
            arguments.width,
            words="public:glove",
        ),
        ScheduleSettings(
            epochs.get(row, arguments.author_epochs),
            batches[row],
            arguments.rate if is_private else 1e-3,
            seed=arguments.seed,
            device=arguments.device,
        ),
        MethodSettings(
            method,
            epsilon=arguments.epsilon if is_private else None,
            delta=arguments.delta if is_private else None,
            unit=unit,
            texts_per_author=arguments.texts_per_author if by_author else None,
        ),
        CanarySettings(tuple(arguments.canaries), arguments.canary_authors),
    )


def measure(
    row: str, texts: Sequence[str], authors: Sequence[str], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Train one model and attack its canaries."""
    clock = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        model = train_model(texts, authors, Path(folder) / "model", settings_of(row, arguments))
    seconds = time.monotonic() - clock
    attack = attack_canaries(
        Scorer(model.network, arguments.device),
        model.vocabulary,
        model.canaries,
        samples=arguments.samples,
        seed=arguments.seed,
    )
    assert model.record is not None

    def by_level(values: Any) -> dict[str, tuple[float, float, float]]:
        levels = attack.repetitions
        return {
            str(level): mean_by_author(
                np.asarray(values, dtype=float)[levels == level], attack.authors[levels == level]
            )
            for level in np.unique(levels)
        }

    promise = model.guarantee
    return {
        "row": row,
        "seed": arguments.seed,
        "network": arguments.network,
        "epsilon": None if promise.notion == "none" else promise.epsilon,
        "delta": None if promise.notion == "none" else promise.delta,
        "guarantee": promise.sentence(),
        "privacy": model.training["privacy"],
        "rows": model.record.figures["rows"],
        "test_perplexity": model.record.figures["test_perplexity"],
        "exposure": by_level(attack.exposure.bits),
        "tab": by_level(attack.completion.exact),
        "seconds": round(seconds, 1),
    }


def show(rows: Sequence[dict[str, Any]]) -> None:
    """The rows as a table of the card."""
    levels = sorted({int(level) for row in rows for level in row["exposure"]})
    titles = ["never" if level == 0 else str(level) for level in levels]
    print(
        "| model | test perplexity | " + " | ".join(f"exposure, {t}" for t in titles) + " | tab |"
    )
    print("|---" * (len(levels) + 3) + "|")
    for row in rows:
        name = "none"
        if row["epsilon"] is not None:
            name = f"dpsgd, {row['row']}, ε = {row['epsilon']:.2f}, δ = {row['delta']:g}"
        cells = ["{:.1f} ({:.1f}–{:.1f})".format(*row["exposure"][str(level)]) for level in levels]
        tab = f"{100 * row['tab'][str(levels[-1])][0]:.0f} %"
        print(f"| {name} | {row['test_perplexity']:.0f} | " + " | ".join(cells) + f" | {tab} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--network", default="lstm")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--writers", type=int, default=0, help="authors that take part; all")
    parser.add_argument("--epochs", type=int, default=4, help="of the model without a promise")
    parser.add_argument("--text-epochs", type=int, default=10)
    parser.add_argument("--text-batch", type=int, default=2000, help="texts per step, expected")
    parser.add_argument("--author-epochs", type=int, default=40)
    parser.add_argument("--author-batch", type=int, default=400, help="authors per step, expected")
    parser.add_argument("--texts-per-author", type=int, default=16)
    parser.add_argument("--rate", type=float, default=2e-3, help="of the private ones")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--canaries", type=int, nargs="+", default=[1, 5, 10, 20, 50])
    parser.add_argument("--canary-authors", type=int, default=20)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("author_models.jsonl"))
    arguments = parser.parse_args()
    lines = arguments.out.read_text().splitlines() if arguments.out.is_file() else []
    rows = [json.loads(line) for line in lines]
    texts, authors = blog_sentences(arguments.writers)
    print(f"{len(texts)} sentences by {len(set(authors))} authors", flush=True)
    for name in arguments.rows:
        job = {"row": name, "seed": arguments.seed, "network": arguments.network}
        if any(job.items() <= row.items() for row in rows):
            continue
        rows.append(measure(name, texts, authors, arguments))
        with arguments.out.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        print(f"{name}: {rows[-1]['guarantee']} ({rows[-1]['seconds']} s)", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
