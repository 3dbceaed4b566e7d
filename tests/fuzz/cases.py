"""The cases: readers, options, recipes, private folders, findings, and the Python interface."""

from __future__ import annotations

import json
import random
import shutil
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import capelet

# Beforehand: to import a model framework is no work of a case's.
import capelet.workflows.language.train
import capelet.workflows.protect
from capelet.data.corpus import Corpus
from capelet.findings import Finding, Findings
from capelet.mechanisms import MECHANISMS
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder, Release
from capelet.release.batch import encode
from capelet.release.maps import Layer, Map
from fuzz import generators
from fuzz.oracle import DIGITS, SECRET, call

ROWS = 60
WHERES = (
    "label == 'a'", "label >= 10000000000000000000000000", "not " * 900 + "label", "(" * 200, "",
    "label ==", "'x' == 'x", "1 == 1", "label == nan", "__import__('os')", "text in ('a',)", "\x00",
)  # fmt: skip


# ---- readers -------------------------------------------------------------------------------------


def reader(rng: random.Random, folder: Path) -> None:
    """A hostile file, read, looked at, or released."""
    path = generators.file(rng, folder)
    columns: dict[str, Any] = {
        "text": rng.choice(["text", "text", None, generators.name(rng)]),
        "label": rng.choice([None, "label", generators.name(rng)]),
        "private": rng.choice([(), ["private"], [generators.name(rng), "label"]]),
        "author": rng.choice([None, None, "author", generators.name(rng)]),
        "vectors": rng.choice([None, None, "vector", generators.name(rng)]),
        "where": rng.choice([None, None, None, rng.choice(WHERES)]),
        "drop_empty": rng.random() < 0.3,
        "merge_rare": rng.choice([None, None, 2, 0, -1, 10**20]),
        "encoding": rng.choice([None, None, "latin-1", "utf-16", "nonsense", "zip", ""]),
        "separator": rng.choice([None, None, "semicolon", "tab", "", "\n", '"', "ab"]),
    }
    action = rng.random()
    if action < 0.6:
        capelet.read(path, columns.pop("text"), **columns)
    elif action < 0.8:
        call("check", path, *rng.choice([[], ["--json"]]))
    else:
        private = PrivateEncoder(capelet.Laplace(epsilon=1))
        encode(path, folder / "out.parquet", private, vectors=columns["vectors"] or "vector")


# ---- options -------------------------------------------------------------------------------------

HOSTILE = (
    "", " ", "nan", "inf", "-inf", "-1", "-0.0", "1e400", "99999999999999999999", "1e-400", "0x10",
    "none", "all", ",", ",,", "..", "/", "\u202e", "a" * 5000, "--", "=", "age=", "=1", "age=nan",
    "age=1,1", "age=3,2,1", "names,,", "words:/nowhere", "words:/", "topics|", "|",
)  # fmt: skip
AUDITED = (
    "--text", "--label", "--private", "--derive", "--author", "--where", "--merge-rare",
    "--encoder", "--backend", "--vectors", "--recipe", "--split", "--seeds", "--attacks",
    "--attackers", "--member", "--bins", "--fail-over", "--require-under", "--min-victims",
    "--encoding", "--separator",
)  # fmt: skip
PROTECTED = (
    "--method", "--hold-out", "--epsilon", "--adversary-weight", "--train-epsilon", "--train-delta",
    "--unit", "--word-dropout", "--width", "--keep", "--tune-layers", "--max-leakage",
    "--min-utility", "--trials",
)  # fmt: skip
TRAINED = (
    "--layers", "--width", "--length", "--vocabulary", "--epochs", "--batch", "--epsilon",
    "--delta", "--noise-multiplier", "--clip", "--unit", "--canaries", "--seed", "--method",
    "--network", "--words", "--device", "--learning-rate",
)  # fmt: skip


@lru_cache(maxsize=1)
def _table() -> pa.Table:
    random_state = np.random.default_rng(3)
    vectors = random_state.normal(size=(ROWS, 4)).astype(np.float32)
    return pa.table(
        {
            "text": [f"today {SECRET}{row} was a day" for row in range(ROWS)],
            "vector": vectors.tolist(),
            "label": ["a" if row[0] > 0 else SECRET for row in vectors],
            "private": ["m" if row[1] > 0 else f"{SECRET}f" for row in vectors],
            "age": [int(DIGITS) + row for row in range(ROWS)],
            "author": [f"Ann {SECRET}{row // 3}" for row in range(ROWS)],
        }
    )


def options(rng: random.Random, folder: Path) -> None:
    """A sound file, and an option with a value that nobody should give."""
    path = folder / "rows.parquet"
    pa.parquet.write_table(_table(), path)
    out = folder / "out"
    base = ["--vectors", "vector", "--private", "private"]
    quick = ["--seeds", "1", "--attackers", "logistic"]
    value = rng.choice(HOSTILE)
    recipe = folder / "recipe.toml"
    recipe.write_text('[[steps]]\nstep = "laplace"\nepsilon = 1.0\n')
    kind = rng.choice(["audit", "audit", "protect", "encode", "lm", "other"])
    if kind == "audit":
        # What is asked for stands last, and takes the place of what is sound.
        call("audit", path, *base, *quick, rng.choice(AUDITED), value, "--out", out)
    elif kind == "protect":
        method = ["--label", "label", "--method", "nothing"]
        call("protect", path, *base, *method, rng.choice(PROTECTED[1:]), value, "--out", out)
    elif kind == "encode":
        names = (
            "--vectors",
            "--text",
            "--subject",
            "--ledger",
            "--budget",
            "--repeats",
            "--anchor",
        )
        arguments = ["--vectors", "vector", "--recipe", recipe, rng.choice(names), value]
        call("encode", path, rng.choice([folder / "o.parquet", path, folder, value]), *arguments)
    elif kind == "lm":
        # Without --text nothing is trained, however much of the options is in order.
        call("lm", "train", path, "--text", "age", rng.choice(TRAINED), value, "--out", out)
    else:
        commands = (
            ("report", value), ("report", folder, value), ("verify", "--recipe", value),
            ("verify", value), ("check", value), ("budgets", "show", value),
            ("budgets", "raise", folder / "l.db", "--to", value), ("encode", value, path),
            ("invert", path, "--text", value), ("membership", path, "--member", value),
            ("lm", "attack", value), ("dual", "utility", value), ("audit", value),
            ("verify", "--recipe", recipe, "--samples", value),
            ("verify", "--recipe", recipe, "--samples", "10", "--confidence", value),
        )  # fmt: skip
        call(*rng.choice(commands))


# ---- recipes -------------------------------------------------------------------------------------

KEYS = ("delta", "classes", "dimension", "clip", "mu", "file", "sha256", "id", "k")


def recipe(rng: random.Random, folder: Path) -> None:
    """A recipe of random steps and values, read and, where it stands, applied."""
    blocks = []
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        step = rng.choice([*MECHANISMS, "laplace", "gaussian", "map", "encoder", "specimen:x", ""])
        lines = [f"step = {json.dumps(step)}"]
        if step not in ("projection", "rounding", "word-dropout", "map", "encoder"):
            epsilon = rng.choice([1, 2.5, 1e5, generators.number(rng)])
            lines.append(f"epsilon = {_toml(rng, epsilon)}")
        if step == "gaussian":
            lines.append(f"delta = {_toml(rng, rng.choice([1e-5, generators.number(rng)]))}")
        if step == "randomised-response":
            lines.append(f"classes = {_toml(rng, rng.choice([3, 3, 2, 10**12, 1, 0]))}")
        if rng.random() < 0.3:
            key = rng.choice(KEYS)
            lines.append(f"{key} = {_toml(rng, generators.cell(rng, 2))}")
        if step == "encoder":
            lines.append(f"name = {rng.choice(['3', '[]', json.dumps('nowhere'), 'true'])}")
        blocks.append("\n".join(["[[steps]]", *dict.fromkeys(lines)]))
    content = "\n\n".join(blocks)
    if rng.random() < 0.2:
        place = rng.randint(0, len(content))
        content = content[:place] + rng.choice(['"', "[", "\x00", "steps = 3\n"]) + content[place:]
    path = folder / "recipe.toml"
    path.write_text(content)
    private = PrivateEncoder.from_recipe(path)
    if private.consumes == "vectors":
        matrix = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        release = private.release(matrix)
        assert np.isfinite(release.vectors).all() and release.guarantee.sentence()
        release.save(folder / "out.parquet")
        Release.load(folder / "out.parquet")


def _toml(rng: random.Random, value: Any) -> str:
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict) or value is None:
        return "{}"
    return json.dumps(value)


# ---- private folders -----------------------------------------------------------------------------


def private_folder(rng: random.Random, folder: Path) -> None:
    """A private encoder's folder with something in it changed; unchanged ones must load."""
    source = folder / "private"
    weight = np.eye(3, dtype=np.float32)
    learnt = Map((Layer(weight, np.zeros(3, np.float32)),))
    PrivateEncoder(capelet.Laplace(epsilon=2), learnt).save(source, {"rows": 3})
    before = {path: path.read_bytes() for path in source.iterdir()}
    change = rng.choice(
        [_edit_manifest, _edit_bytes, _plant_link, _plant_pickle, _drop, _point_out]
    )
    change(rng, source, folder)
    after = {path: path.read_bytes() for path in source.iterdir() if path.is_file()}
    private = PrivateEncoder.load(source)
    private.release(np.ones((2, 3), dtype=np.float32))
    # Whatever was loaded says what it said before: a changed ε or map never gets this far.
    names = ("recipe.toml", "map.safetensors")
    assert all(after[source / name] == before[source / name] for name in names)


def _edit_manifest(rng: random.Random, source: Path, folder: Path) -> None:
    path = source / "manifest.json"
    document = json.loads(path.read_text())
    for _ in range(rng.randint(1, 3)):
        document = generators.mutate(rng, document)
    path.write_text(json.dumps(document))


def _edit_bytes(rng: random.Random, source: Path, folder: Path) -> None:
    path = rng.choice(sorted(source.iterdir()))
    content = path.read_bytes()
    place = rng.randint(0, len(content))
    path.write_bytes(content[:place] + rng.choice(generators.BYTES) + content[place + 2 :])


def _plant_link(rng: random.Random, source: Path, folder: Path) -> None:
    path = rng.choice(sorted(source.iterdir()))
    target = rng.choice([folder / "elsewhere", Path("/dev/zero"), Path("/"), folder / "nothing"])
    shutil.copy(path, folder / "elsewhere")
    path.unlink()
    # The manifest itself may be linked; what it names may not.
    path.symlink_to(folder / "elsewhere" if path.name == "manifest.json" else target)


def _plant_pickle(rng: random.Random, source: Path, folder: Path) -> None:
    name = rng.choice(["map.pkl", "map.bin", "deep/er/m.pt", "map.safetensors", "M.PKL"])
    (source / name).parent.mkdir(parents=True, exist_ok=True)
    (source / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    if rng.random() < 0.5:
        _rename_map(source, name)


def _drop(rng: random.Random, source: Path, folder: Path) -> None:
    rng.choice(sorted(source.iterdir())).unlink()


def _point_out(rng: random.Random, source: Path, folder: Path) -> None:
    shutil.copy(source / "map.safetensors", folder / "outside.safetensors")
    outside = folder / "outside.safetensors"
    _rename_map(
        source, rng.choice([str(outside), "../outside.safetensors", "a/../../x", "", "\\x"])
    )


def _rename_map(source: Path, name: str) -> None:
    """Recipe and manifest name another file, with the hash that the recipe then has."""
    import hashlib

    recipe = (source / "recipe.toml").read_text().replace("map.safetensors", name)
    (source / "recipe.toml").write_text(recipe)
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["files"][name] = manifest["files"].pop("map.safetensors")
    manifest["files"]["recipe.toml"] = hashlib.sha256(recipe.encode()).hexdigest()
    (source / "manifest.json").write_text(json.dumps(manifest))


# ---- findings ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _findings() -> str:
    """A small audit as it is saved, artefacts and all."""
    table = _table().select(["vector", "label", "private"])
    labels = {"label": "label", "private": ["private"]}
    findings = capelet.audit(
        table, PrivateEncoder(capelet.Laplace(epsilon=2)), vectors="vector", **labels, seeds=1,
        attackers=["logistic"], cache=False,
    )  # fmt: skip
    document = json.loads(findings.to_json().replace(SECRET, "b"))
    artefacts = json.loads(json.dumps(findings.artefacts, default=lambda item: item.tolist()))
    return json.dumps([document, artefacts])


def findings_file(rng: random.Random, folder: Path) -> None:
    """Findings that somebody edited: loaded, and drawn as a page."""
    document, artefacts = json.loads(_findings())
    changes = rng.randint(1, 3)
    if rng.random() < 0.7:
        for _ in range(changes):
            document = generators.mutate(rng, document)
    else:
        artefacts = generators.mutate(rng, artefacts)
    (folder / "artefacts").mkdir()
    content = json.dumps(document)
    if rng.random() < 0.1:
        content = rng.choice(["[" * 5000, content[: len(content) // 2], "NaN", '{"schema": 1e999}'])
    (folder / "findings.json").write_text(content)
    for name, value in artefacts.items() if isinstance(artefacts, dict) else ():
        if "/" not in name and len(name) < 99:
            (folder / "artefacts" / f"{name}.json").write_text(json.dumps(value))
    if rng.random() < 0.6:
        Findings.load(folder)
    else:
        # A page may show what stands in findings; a refusal may not.
        call("report", folder, "--out", folder / "page")


# ---- Python --------------------------------------------------------------------------------------


def interface(rng: random.Random, folder: Path) -> None:
    """Mechanisms, corpora, guarantees and findings of values that nobody should give."""
    case = rng.choice([_mechanism, _corpus, _guarantee, _audit, _finding])
    case(rng, folder)


def _array(rng: random.Random) -> Any:
    shape = rng.choice([(0, 3), (4, 3), (4, 3), (40, 3), (4, 0), (4,), (2, 2, 2), ()])
    kind = rng.choice(["f4", "f8", "i8", "f2", "object", "U3", "bool"])
    scale = rng.choice([0.0, 1e-30, 1.0, 1.0, 1e20, 1e37])
    values = np.asarray(np.random.default_rng(rng.randint(0, 99)).normal(size=shape) * scale)
    with np.errstate(all="ignore"):
        array = values.astype(kind)
    if kind in ("f4", "f8") and array.size and rng.random() < 0.3:
        array.flat[0] = rng.choice([np.nan, np.inf])
    return rng.choice([array, array, array.tolist()])


def _mechanism(rng: random.Random, folder: Path) -> None:
    kind = rng.choice(["Laplace", "Gaussian", "PrivUnit", "RandomisedResponse", "Projection"])
    epsilon = rng.choice([1, 8, 1e5, 1e6, generators.number(rng), text_or_none(rng)])
    more = {
        "Gaussian": {"delta": rng.choice([1e-5, generators.number(rng)])},
        "RandomisedResponse": {"classes": rng.choice([3, 3, 2, 10**9, generators.number(rng)])},
    }
    if kind == "Projection":
        step = capelet.Projection(rng.choice([2, generators.number(rng), text_or_none(rng)]))
    else:
        step = getattr(capelet, kind)(epsilon=epsilon, **more.get(kind, {}))
    assert np.isfinite(np.asarray(step(_array(rng)))).all()


def text_or_none(rng: random.Random) -> Any:
    return rng.choice([None, SECRET, [], True])


def _columns(rng: random.Random) -> dict[str, Any]:
    rows = rng.choice([4, 40])
    return {
        "label": rng.choice([None, generators.column(rng, rows), SECRET, 3]),
        "private": rng.choice([{}, {generators.name(rng): generators.column(rng, rows)}, [1], 3]),
        "author": rng.choice([None, None, generators.column(rng, rows)]),
    }


def _corpus(rng: random.Random, folder: Path) -> None:
    texts = rng.choice([None, generators.column(rng, 4), [f"{SECRET} {row}" for row in range(40)]])
    corpus = Corpus("x", texts=texts, vectors=rng.choice([None, _array(rng)]), **_columns(rng))
    assert repr(corpus) is not None


def _guarantee(rng: random.Random, folder: Path) -> None:
    document = capelet.Laplace(epsilon=2).guarantee.to_json()
    promise = Guarantee.from_json(generators.mutate(rng, document))
    assert promise.sentence()


def _audit(rng: random.Random, folder: Path) -> None:
    table = {name: generators.column(rng, 40) for name in ("text", "label", "private")}
    table["vector"] = _array(rng)
    capelet.audit(
        rng.choice([table, table["text"], table["vector"], None, 3, {}, [], [SECRET]]),
        vectors=rng.choice([None, "vector"]),
        label=rng.choice([None, "label"]),
        private=rng.choice([None, "private", ["private"], [3], "nothing"]),
        seeds=rng.choice([1, 0, -1]),
        attackers=rng.choice([["logistic"], ["nobody"], "logistic"]),
        encoder=rng.choice([None, capelet.PrivateEncoder(), "nowhere"]),
        cache=False,
    )


def _finding(rng: random.Random, folder: Path) -> None:
    value = rng.choice([0.5, generators.number(rng)])
    rows = (Finding("utility", generators.name(rng), "accuracy", value, n=rng.choice([None, 3])),)
    findings = Findings(rows, artefacts={"curve": {"x": [value]}})
    findings.save(folder / "run")
    assert len(Findings.load(folder / "run")) == 1
