"""`capelet protect`: train an encoder that keeps the task and loses the writer."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capelet.cli.shared import (
    Attackers,
    AuthorColumn,
    Backend,
    Bins,
    DataArgument,
    Derived,
    EncoderName,
    JsonFlag,
    LabelColumn,
    NoCache,
    PrivateColumns,
    Seeds,
    SplitKind,
    TextColumn,
    VectorColumn,
    Where,
    app,
    bins_of,
    corpus_of,
    listed,
    private_encoder_of,
    progress_bars,
    sentences,
)

if TYPE_CHECKING:
    from capelet.workflows.protect import Protected

WIDTH = 64


@app.command(
    epilog="Example: `capelet protect mails.parquet --text body --label topic "
    "--private gender,age --method bottleneck --epsilon 8 --out private/mails`"
)
@sentences
def protect(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Folder of the private encoder and its report.")],
    method: Annotated[
        str, typer.Option(help="fx, ae, gr, gr+, cgt, leace, ldp, cape, mdp, dpnr or bottleneck.")
    ] = "gr+",
    text: TextColumn = None,
    label: LabelColumn = None,
    private: PrivateColumns = None,
    hold_out: Annotated[
        str | None, typer.Option(help="Private attributes that training may not see.")
    ] = None,
    derive: Derived = None,
    author: AuthorColumn = None,
    where: Where = None,
    bins: Bins = None,
    encoder: EncoderName = "minilm",
    backend: Backend = "auto",
    vectors: VectorColumn = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε of the noise.")] = None,
    lam: Annotated[
        float | None, typer.Option("--lambda", help="How hard the secrets are fought.")
    ] = None,
    mu: Annotated[float, typer.Option(help="The share of words that dpnr drops.")] = 0.5,
    width: Annotated[int, typer.Option(help="Units of the dense layers.")] = WIDTH,
    keep: Annotated[str, typer.Option(help="What to keep: task, neighbours or both.")] = "auto",
    tune_layers: Annotated[
        int, typer.Option(help="How many last layers of the encoder to train along.")
    ] = 0,
    max_leakage: Annotated[
        float | None,
        typer.Option(help="Search settings whose attackers gain at most this over chance."),
    ] = None,
    min_utility: Annotated[
        float | None, typer.Option(help="Search settings that are worth at least this.")
    ] = None,
    trials: Annotated[int, typer.Option(help="How many settings to try.")] = 20,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Train at an ε at which nothing can work, too.")
    ] = False,
    split: SplitKind = "auto",
    seeds: Seeds = 3,
    attackers: Attackers = None,
    no_cache: NoCache = False,
    json: JsonFlag = False,
) -> None:
    """Train a private encoder; measure before and after with fresh attackers; write a report."""
    from capelet.data.labels import makes_task
    from capelet.defences import METHODS, Settings
    from capelet.files import check_writable
    from capelet.workflows.protect import protect as run
    from capelet.workflows.search import NoPoint

    check_writable(out)
    corpus = corpus_of(data, text, label, private, author, vectors, where)
    if keep == "auto":
        task = corpus.label is not None or any(map(makes_task, listed(derive)))
        known = METHODS.get(method)  # `protect` refuses the name that is in no table
        free = known is not None and "neighbours" in known.keeps
        keep = "task" if task or not free else "neighbours"
    settings = Settings(epsilon, lam, mu, width, keep, layers=tune_layers)
    options: dict[str, Any] = {
        "held_out": listed(hold_out),
        "max_leakage": max_leakage,
        "min_utility": min_utility,
        "trials": trials,
        "anyway": anyway,
        "seeds": seeds,
        "split_kind": split,
        "attackers": listed(attackers),
        "derived": listed(derive),
        "bins": bins_of(bins or []),
        "cache": not no_cache,
    }
    plain = private_encoder_of(corpus, None, encoder, backend)
    fixed = [name for name, given in (("epsilon", epsilon), ("lam", lam)) if given is not None]
    if width != WIDTH:
        fixed.append("width")
    try:
        with progress_bars(json) as progress:
            done = run(corpus, plain, method, settings, fixed=fixed, progress=progress, **options)
    except NoPoint as error:
        print(f"capelet: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    _write(done, out, json)


def _write(done: Protected, out: Path, as_json: bool) -> None:
    from capelet.reports import verdicts, write_protection
    from capelet.reports.protection import NO_NOISE

    command = shlex.join(["capelet", *sys.argv[1:]])
    origin = {**done.after.provenance, "command": command}
    done = replace(done, after=replace(done.after, provenance=origin))
    folder = done.save(out)
    page = write_protection(done.before, done.after, folder)
    noise = done.encoder.guarantee
    promise = NO_NOISE if noise.notion == "none" else noise.sentence()
    before, now = verdicts(done.before), verdicts(done.after)
    if as_json:
        summary = {
            "encoder": str(folder),
            "report": str(page),
            "guarantee": promise,
            "before": [{"target": item.target, "sentence": item.sentence} for item in before],
            "after": [{"target": item.target, "sentence": item.sentence} for item in now],
        }
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    for name, said in (("before", before), ("after", now)):
        for item in said:
            print(f"{name} [{item.level}] {item.sentence}")
    print(f"guarantee: {promise}")
    print(f"private encoder: {folder}")
    print(f"report: {page}")
