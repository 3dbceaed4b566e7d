"""`capelet dual train`, `capelet dual utility`: sentence encoders that hide words and writers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Data, Group, Json
from capelet.cli.inputs import read_texts
from capelet.cli.terminal import answer, echo, print_json, progress_bars
from capelet.errors import CapeletError, DataError
from capelet.question import Columns, DualNetwork, DualTraining, Names, chosen

if TYPE_CHECKING:
    from capelet.defences.contrastive import Dual

SUMMARY_FIELDS = ("target", "metric", "value", "low", "high", "majority", "n")


def train(
    data: Data,
    /,
    *,
    out: Annotated[Path, Group.OUTPUT, "Folder of the encoder."],
    columns: Annotated[Columns, Group.DATA, "text author where drop_empty encoding separator"],
    network: DualNetwork,
    training: DualTraining,
    start: Annotated[str, "Word vectors to begin from: none, or glove (extra: words)."] = "none",
    json: Json = False,
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
    texts, authors, _ = read_texts(data, columns)
    # After the data were read: what is wrong with them is said before torch is loaded.
    from capelet.defences.contrastive import Contrastive, Sentences

    vectors = _word_vectors() if start == "glove" else None
    sentences = Sentences.of(texts, authors)
    learner = Contrastive(**chosen(network), **chosen(training))
    with progress_bars(json) as progress:
        encoder = learner.fit(sentences, vectors, progress, cache_folder() / "training")
    encoder.save(out)
    _print_training(encoder, out, json)


def _word_vectors() -> Any:
    from capelet.encoders import WordVectorEncoder

    return WordVectorEncoder().token_table()


def _print_training(encoder: Dual, out: Path, as_json: bool) -> None:
    pairs, last = encoder.training["pairs"], encoder.training["history"][-1]
    answer(
        as_json,
        {"encoder": str(out), "pairs": pairs, **last},
        f"{pairs} pairs of sentences; loss {last['contrast']:.3f}",
        "guarantee: none; attack the encoder with `capelet invert` and `capelet audit`",
        f"encoder: {out}",
    )


def utility(
    encoder: Annotated[str, "{encoders}, a folder or a Hugging Face id."],
    /,
    *,
    tasks: Annotated[Names, "{sentence tasks}; all that are here."] = (),
    backend: Annotated[str, Group.DATA, "auto, torch, onnx or int8."] = "auto",
    json: Json = False,
) -> None:
    """Score any encoder on small tasks of sentence analysis by logistic regression.

    Example: `capelet dual utility encoders/posts --tasks trec,mrpc`
    """
    from capelet.data.datasets import is_available
    from capelet.encoders import load
    from capelet.evaluation.sentences import TASKS, SentenceTask, measure_all

    names = tasks or [name for name in TASKS if is_available(name)]
    if not names:
        raise DataError(f"none of the sets {', '.join(TASKS)} is here; see `capelet list`")
    model = load(encoder, backend)
    with progress_bars(json) as progress:
        rows = measure_all(
            lambda texts: model.encode(texts, progress), [SentenceTask.load(n) for n in names]
        )
    if json:
        print_json([{key: getattr(row, key) for key in SUMMARY_FIELDS} for row in rows])
        return
    for row in rows:
        line = f"{row.target:>10}  {row.metric} {row.value:.3f} ({row.low:.3f} to {row.high:.3f})"
        echo(line + (f", majority {row.majority:.3f}" if row.majority else ""))
