"""`capelet invert` and `capelet membership`: read words back, tell what a model was trained on."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from capelet.cli.shared import (
    AuthorColumn,
    Backend,
    DataArgument,
    EncoderName,
    JsonFlag,
    TextColumn,
    Where,
    app,
    corpus_of,
    listed,
    private_encoder_of,
    progress_bars,
    sentences,
)
from capelet.errors import DataError

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.findings import Findings


@app.command(
    epilog="Example: `capelet invert mails.parquet --text body --sentences "
    "--attacks multi-label,sparse-coding --out runs/words`"
)
@sentences
def invert(
    data: DataArgument,
    text: TextColumn = None,
    author: AuthorColumn = None,
    where: Where = None,
    encoder: EncoderName = "minilm",
    backend: Backend = "auto",
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML recipe: attack what this private encoder releases.")
    ] = None,
    auxiliary: Annotated[
        str | None,
        typer.Option(help="The attacker's own texts: a file with the same text column, or a set."),
    ] = None,
    attacks: Annotated[
        str,
        typer.Option(
            "--attacks",
            "--attack",
            help="multi-label, multi-set, sequence, sparse-coding, relaxation, relaxation-mapped.",
        ),
    ] = "multi-label,multi-set",
    cut: Annotated[
        bool, typer.Option("--sentences", help="Cut texts into sentences of 5 to 20 words.")
    ] = False,
    draws: Annotated[
        int, typer.Option(help="How often the attacker sends each text through a noised release.")
    ] = 1,
    most: Annotated[
        int | None, typer.Option(help="Use at most so many texts (drawn at random).")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="How long the attack 'sequence' may learn.")
    ] = None,
    show_texts: Annotated[
        bool, typer.Option("--show-texts", help="Put texts and words into the examples.")
    ] = False,
    overlap: Annotated[
        bool, typer.Option("--allow-overlap", help="Allow victims among the auxiliary texts.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the attackers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.")] = None,
    json: JsonFlag = False,
) -> None:
    """Try to read the words of texts back from their vectors."""
    from capelet.attacks.inversion.run import Inversion
    from capelet.evaluation.provenance import Clock, inversion_provenance
    from capelet.files import check_writable
    from capelet.reports import write_report

    clock = Clock()
    folder = out or Path("runs") / f"{Path(data).stem}-inverted"
    check_writable(folder)
    if draws < 1:
        raise DataError(f"--draws is {draws}; it must be at least 1")
    if minutes is not None and not minutes > 0:
        raise DataError(f"--minutes is {minutes}; it must be above 0")
    corpus = corpus_of(data, text, None, None, author, None, where)
    texts, owners = _texts(corpus, cut, most, seed)
    other = None if auxiliary is None else corpus_of(auxiliary, text, None, None, None, None, None)
    own = None if other is None else _texts(other, cut, most, seed)[0]
    attack = Inversion(
        attacks=listed(attacks),
        draws=draws,
        redact=not show_texts,
        overlap=overlap,
        seed=seed,
        options=None if minutes is None else {"sequence": {"minutes": minutes}},
    )
    private = private_encoder_of(corpus, recipe, encoder, backend)
    with progress_bars(json) as progress, clock("inversion"):
        findings = attack.measure(texts, private, auxiliary=own, authors=owners, progress=progress)
    origin = inversion_provenance(
        corpus, private, findings, clock, seed=seed, texts=len(texts), auxiliary=other
    )
    command = shlex.join(["capelet", *sys.argv[1:]])
    findings = replace(findings, provenance={**origin, "command": command})
    _show_inversion(findings, write_report(findings, folder), json)


def _texts(
    corpus: Corpus, cut: bool, most: int | None, seed: int
) -> tuple[list[str], list[str] | None]:
    """Texts and their authors, as they are or cut into sentences; at most so many of them."""
    import numpy as np

    from capelet.data.text import sentences_of

    if corpus.texts is None:
        raise DataError("inversion reads texts back, so it needs them; name their column (--text)")
    texts = corpus.texts.tolist()
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    if cut:
        texts, owner = sentences_of(texts)
        # Sentences of one text stay together, as do all of one author.
        authors = [f"text {row}" if authors is None else authors[row] for row in owner.tolist()]
    if most is not None and len(texts) > most:
        kept = np.sort(np.random.default_rng([seed, 0x1F]).permutation(len(texts))[:most])
        texts = [texts[row] for row in kept]
        authors = None if authors is None else [authors[row] for row in kept]
    return texts, authors


def _show_inversion(findings: Findings, page: Path, as_json: bool) -> None:
    scored = [row for row in findings.select(kind="inversion", metric="f1") if row.subgroup is None]
    if as_json:
        found: dict[str | None, dict[str, float | None]] = {
            row.attacker: {"f1": row.value, "low": row.low, "high": row.high} for row in scored
        }
        for row in findings.select(kind="inversion", target="sentence"):
            found[row.attacker][row.metric] = row.value
        blind = findings.value(kind="inversion-reference", metric="f1")
        file = str(page.parent / "findings.json")
        said = {"report": str(page), "findings": file, "words": found, "most_frequent": blind}
        print(jsonlib.dumps(said, ensure_ascii=False))
        return
    for row in scored:
        null = findings.value(kind="inversion-null", metric="f1", attacker=row.attacker)
        recall = next(
            item.value
            for item in findings.select(kind="inversion", metric="recall", attacker=row.attacker)
            if item.subgroup is None
        )
        print(
            f"{row.attacker}: reads {recall:.0%} of the words back, F1 {row.value:.3f} "
            f"({row.low:.3f}–{row.high:.3f}); another text's vector {null:.3f}, "
            f"the most frequent words {row.majority:.3f} ({row.n} texts)"
        )
        whole = {
            item.metric: item
            for item in findings.select(kind="inversion", target="sentence", attacker=row.attacker)
        }
        if whole:
            match, order = whole["exact_match"], whole["bleu"]
            print(
                f"{row.attacker}: all words in their order {match.value:.1%} "
                f"({match.low:.1%}–{match.high:.1%}), "
                f"BLEU {order.value:.3f} ({order.low:.3f}–{order.high:.3f})"
            )
    print(f"report: {page}")


@app.command(
    epilog="Example: `capelet membership mails.parquet --text body --member in_training "
    "--words vectors.txt --out runs/members`"
)
@sentences
def membership(
    data: Annotated[str, typer.Argument(help="A Parquet, CSV or JSONL file.")],
    member: Annotated[str, typer.Option(help="Column that says who was trained on (yes/no, 1/0).")],
    text: TextColumn = None,
    author: Annotated[
        str | None, typer.Option(help="Column of the author, for aggregates.")
    ] = None,
    where: Where = None,
    words: Annotated[
        Path | None, typer.Option(help="Word vectors in word2vec's text format, to be attacked.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="Or a text encoder: name, folder or Hugging Face id.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Or a TOML recipe: attack what it releases.")
    ] = None,
    window: Annotated[int, typer.Option(help="Words to either side of a window's centre.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the attackers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.")] = None,
    json: JsonFlag = False,
) -> None:
    """Tell which texts a model was trained on, by how alike things of one context are."""
    from capelet.attacks.membership.run import Membership
    from capelet.evaluation.provenance import Clock, membership_provenance
    from capelet.files import check_writable
    from capelet.reports import write_report

    folder = out or Path("runs") / f"{Path(data).stem}-members"
    check_writable(folder)
    if sum(item is not None for item in (words, encoder, recipe)) != 1:
        raise DataError("name one model to attack: --words FILE, --encoder NAME or --recipe FILE")
    clock = Clock()
    corpus = corpus_of(data, text, None, member, author, None, where)
    if corpus.texts is None:
        raise DataError("membership is asked of texts; name their column (--text)")
    flags = member_flags(corpus.private[member].tolist(), member)
    attack = Membership(window=window, seed=seed)
    texts = [str(item) for item in corpus.texts]
    authors = None if corpus.author is None else [str(name) for name in corpus.author]
    model = words or private_encoder_of(corpus, recipe, encoder or "", "auto")
    with progress_bars(json) as progress, clock("membership"):
        if isinstance(model, Path):
            findings = attack.of_words(texts, flags, model, authors)
        else:
            findings = attack.of_encoder(texts, flags, model, authors, progress)
    origin = membership_provenance(corpus, model, findings, clock, seed=seed, members=sum(flags))
    command = shlex.join(["capelet", *sys.argv[1:]])
    findings = replace(findings, provenance={**origin, "command": command})
    _show_membership(findings, write_report(findings, folder), json)


def member_flags(values: list[object], column: str) -> list[bool]:
    """The member column as yes and no; anything else is refused."""
    yes, no = {"1", "1.0", "true", "yes", "member"}, {"0", "0.0", "false", "no", "non-member"}
    said = [str(value).strip().lower() for value in values]
    unclear = next((row for row, value in enumerate(said) if value not in yes | no), None)
    if unclear is not None:
        raise DataError(
            f"row {unclear} of the column {column!r} is neither yes nor no; write yes/no, "
            "true/false or 1/0"
        )
    return [value in yes for value in said]


def _show_membership(findings: Findings, page: Path, as_json: bool) -> None:
    rows = findings.select(kind="membership", metric="advantage")
    if as_json:
        found = [
            {
                "target": row.target,
                "attacker": row.attacker,
                "subgroup": row.subgroup,
                "advantage": row.value,
                "low": row.low,
                "high": row.high,
            }
            for row in rows
        ]
        said = {
            "report": str(page),
            "findings": str(page.parent / "findings.json"),
            "advantage": found,
        }
        print(jsonlib.dumps(said, ensure_ascii=False))
        return
    for row in rows:
        where = f", {row.subgroup}" if row.subgroup else ""
        auc = findings.select(
            kind="membership",
            metric="auc",
            attacker=row.attacker,
            target=row.target,
            subgroup=row.subgroup,
        )[0]
        print(
            f"{row.target} by {row.attacker}{where}: advantage {row.value:.3f} "
            f"({row.low:.3f}–{row.high:.3f}), AUC {auc.value:.3f}, {row.n} scored"
        )
    print(f"report: {page}")
