"""`capelet audit`: what do embeddings of these texts give away?"""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capelet.cli.attack import member_flags
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
from capelet.errors import DataError

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.findings import Findings
    from capelet.release import PrivateEncoder


@app.command(
    epilog="Example: `capelet audit mails.parquet --text body --label topic "
    "--private gender,age --author sender --out runs/mails`"
)
@sentences
def audit(
    data: DataArgument,
    text: TextColumn = None,
    label: LabelColumn = None,
    private: PrivateColumns = None,
    derive: Derived = None,
    author: AuthorColumn = None,
    where: Where = None,
    encoder: EncoderName = "minilm",
    backend: Backend = "auto",
    vectors: VectorColumn = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML recipe: audit what this private encoder releases.")
    ] = None,
    split: SplitKind = "auto",
    seeds: Seeds = 5,
    attacks: Annotated[
        str,
        typer.Option(
            help="Kinds of attack: attributes, inversion, authorship, membership, or all."
        ),
    ] = "attributes",
    attackers: Attackers = None,
    member: Annotated[
        str | None, typer.Option(help="Column that says who was trained on (yes/no, 1/0).")
    ] = None,
    show_texts: Annotated[
        bool, typer.Option("--show-texts", help="Put texts and words into inversion's examples.")
    ] = False,
    bins: Bins = None,
    fail_over: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 when an attacker gains more than this over chance (95 % confidence)."
        ),
    ] = None,
    no_cache: NoCache = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.")] = None,
    json: JsonFlag = False,
) -> None:
    """Measure what embeddings of your texts give away, and write a report."""
    from capelet.files import check_writable

    folder = out or Path("runs") / Path(data).stem
    check_writable(folder)
    _check_gate(fail_over, private, derive, data, listed(attacks))
    corpus, members = _corpus(data, text, label, private, author, vectors, where, member)
    options = {
        "attacks": listed(attacks),
        "members": members,
        "show_texts": show_texts,
        "seeds": seeds,
        "split_kind": split,
        "attackers": listed(attackers),
        "derived": listed(derive),
        "bins": bins_of(bins or []),
        "cache": not no_cache,
    }
    from capelet.evaluation.attacks import AttackPlan

    AttackPlan.of(
        listed(attacks), corpus, members, listed(derive)
    )  # refused before a model is read
    private_encoder = private_encoder_of(corpus, recipe, encoder, backend)
    findings = _audit(corpus, private_encoder, options, quiet=json)
    from capelet.reports import write_report

    page = write_report(findings, folder)
    over = _over(findings, fail_over)
    _show(findings, page, over, fail_over, json)
    if over:
        raise typer.Exit(1)


def _corpus(
    data: str,
    text: str | None,
    label: str | None,
    private: str | None,
    author: str | None,
    vectors: str | None,
    where: str | None,
    member: str | None,
) -> tuple[Corpus, list[bool] | None]:
    """The corpus, and apart from it who was trained on: that is no attribute to be inferred."""
    from dataclasses import replace

    if member is None:
        return corpus_of(data, text, label, private, author, vectors, where), None
    columns = ",".join([*listed(private), *([] if member in listed(private) else [member])])
    corpus = corpus_of(data, text, label, columns, author, vectors, where)
    others = {name: column for name, column in corpus.private.items() if name != member}
    return replace(corpus, private=others), member_flags(corpus.private[member].tolist(), member)


def _check_gate(
    limit: float | None, private: str | None, derive: str | None, data: str, attacks: list[str]
) -> None:
    """A gate that nothing can trip is a mistake, not a pass."""
    from capelet.data.datasets import DATASETS
    from capelet.data.labels import makes_task

    if limit is None:
        return
    if not 0 <= limit < 1:
        raise DataError(f"--fail-over is a gain in balanced accuracy from 0 to 1, and is {limit:g}")
    known = DATASETS[data].private if data in DATASETS else ()
    secrets = [kind for kind in listed(derive) if not makes_task(kind)]
    if not (private or secrets or known) or not {"attributes", "all"} & set(attacks):
        raise DataError(
            "--fail-over needs an attribute to watch: name it with --private or --derive, and "
            "leave attributes among the --attacks"
        )


def _audit(
    corpus: Corpus, private: PrivateEncoder, options: dict[str, Any], quiet: bool
) -> Findings:
    from dataclasses import replace

    from capelet.evaluation.attacks import AttackPlan
    from capelet.workflows.audit import audit as run
    from capelet.workflows.audit import plan_of

    # Everything that can be wrong with the data is said before a model is read.
    asked = AttackPlan.of(options["attacks"], corpus, options["members"], options["derived"])
    plan = plan_of(corpus, asked, 1, options["split_kind"], options["derived"], options["bins"])
    for warning in plan.advance(private.guarantee):
        print(f"capelet: warning: {warning}", file=sys.stderr)
    for reason in asked.left_out:
        print(f"capelet: left out: {reason}", file=sys.stderr)
    with progress_bars(quiet) as progress:
        findings = run(corpus, private, progress=progress, **options)
    command = shlex.join(["capelet", *sys.argv[1:]])
    return replace(findings, provenance={**findings.provenance, "command": command})


def _over(findings: Findings, limit: float | None) -> list[str]:
    """The attributes whose attacker gains more than the limit, with 95 % confidence."""
    if limit is None:
        return []
    rows = findings.select(
        kind="attribute-inference", attacker="strongest", metric="balanced_accuracy"
    )
    return [
        row.target
        for row in rows
        if row.low is not None and row.chance is not None and row.low - row.chance > limit
    ]


def _show(
    findings: Findings, page: Path, over: list[str], limit: float | None, as_json: bool
) -> None:
    from capelet.reports import all_verdicts

    said = all_verdicts(findings)
    if as_json:
        summary = {
            "report": str(page),
            "findings": str(page.parent / "findings.json"),
            "verdicts": [
                {"target": item.target, "level": item.level, "sentence": item.sentence}
                for item in said
            ],
            "over": over,
        }
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    for item in said:
        print(f"[{item.level}] {item.sentence}")
    for warning in findings.provenance.get("warnings", []):
        print(f"warning: {warning}")
    if limit is not None and not over:
        print(f"gate: no attribute's attacker gains more than {limit:g} over chance")
    if over:
        print(f"gate: over {limit:g} above chance with 95 % confidence: {', '.join(over)}")
    print(f"report: {page}")
