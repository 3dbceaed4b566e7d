"""`capelet dual train`, `capelet dual utility`: sentence encoders that hide words and writers."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capelet.cli import options
from capelet.cli.inputs import Columns, Reading, read_corpus, split_names
from capelet.cli.terminal import echo, print_json, progress_bars
from capelet.errors import CapeletError, DataError

if TYPE_CHECKING:
    from capelet.defences.contrastive import Dual

SUMMARY_FIELDS = ("target", "metric", "value", "low", "high", "majority", "n")


def train(
    data: options.Data,
    out: options.OutEncoder,
    text: options.Text = None,
    author: options.Author = None,
    where: options.Where = None,
    drop_empty: options.DropEmpty = False,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    network: options.DualNetwork = "transformer",
    lambda_words: options.LambdaWords = 0.0,
    lambda_authors: options.LambdaAuthors = 0.0,
    negatives: options.Negatives = None,
    start: options.Start = "none",
    vocabulary: options.DualVocabulary = 20_000,
    width: options.Width = 384,
    layers: options.Layers = 3,
    dimension: options.Dimension = 384,
    length: options.Length = 64,
    epochs: options.PairEpochs = 5,
    batch: options.PairBatch = 1024,
    rate: options.DualRate = 5e-4,
    seed: options.DualSeed = 0,
    json: options.Json = False,
) -> None:
    """Train a sentence encoder on which sentence follows which; the folder is an encoder.

    Attack it afterwards on texts that it was not trained on: `capelet invert`, `capelet audit`.

    Example: `capelet dual train posts.parquet --text body --author user --lambda-words 1.5
    --lambda-authors 3 --start glove --out encoders/posts`
    """
    from capelet.files import cache_folder, check_writable

    check_writable(out)
    if start not in ("none", "glove"):
        raise CapeletError(f"--start is {start!r}; give none or glove")
    reading = Reading(where, drop_empty, None, encoding, separator)
    corpus = read_corpus(data, Columns(text=text, author=author), reading)
    # After the data were read: what is wrong with them is said before torch is loaded.
    from capelet.defences.contrastive import Contrastive, Sentences

    vectors = _word_vectors() if start == "glove" else None
    if corpus.texts is None:
        raise DataError("a dual encoder is trained on texts; name their column with --text")
    authors = None if corpus.author is None else list(corpus.author)
    sentences = Sentences.of(list(corpus.texts), authors)
    training = Contrastive(
        network=network,
        width=width,
        layers=layers,
        dimension=dimension,
        vocabulary=vocabulary,
        length=length,
        epochs=epochs,
        batch=batch,
        rate=rate,
        lambda_words=lambda_words,
        lambda_authors=lambda_authors,
        negatives=negatives or ("author" if lambda_authors else "any"),
        seed=seed,
    )
    with progress_bars(json) as progress:
        encoder = training.fit(sentences, vectors, progress, cache_folder() / "training")
    encoder.save(out)
    _print_training(encoder, out, json)


def _word_vectors() -> Any:
    from capelet.encoders import WordVectorEncoder

    return WordVectorEncoder().token_table()


def _print_training(encoder: Dual, out: Path, as_json: bool) -> None:
    pairs, last = encoder.training["pairs"], encoder.training["history"][-1]
    if as_json:
        print_json({"encoder": str(out), "pairs": pairs, **last})
        return
    echo(f"{pairs} pairs of sentences; loss {last['contrast']:.3f}")
    echo("guarantee: none; attack the encoder with `capelet invert` and `capelet audit`")
    echo(f"encoder: {out}")


def utility(
    encoder: options.EncoderArgument,
    tasks: options.Tasks = None,
    backend: options.Backend = "auto",
    json: options.Json = False,
) -> None:
    """Score any encoder on small tasks of sentence analysis by logistic regression.

    Example: `capelet dual utility encoders/posts --tasks trec,mrpc`
    """
    from capelet.data.datasets import is_available
    from capelet.encoders import load
    from capelet.evaluation.sentences import TASKS, SentenceTask, measure_all

    names = split_names(tasks) or [name for name in TASKS if is_available(name)]
    if not names:
        raise DataError(f"none of the sets {', '.join(TASKS)} is here; see `capelet list`")
    model = load(encoder, backend)
    with progress_bars(json) as progress:
        rows = measure_all(
            lambda texts: model.encode(texts, progress), [SentenceTask.load(n) for n in names]
        )
    if json:
        echo(jsonlib.dumps([{key: getattr(row, key) for key in SUMMARY_FIELDS} for row in rows]))
        return
    for row in rows:
        line = f"{row.target:>10}  {row.metric} {row.value:.3f} ({row.low:.3f} to {row.high:.3f})"
        echo(line + (f", majority {row.majority:.3f}" if row.majority else ""))
