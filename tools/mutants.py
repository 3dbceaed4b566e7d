"""Would the tests notice? Small faults are put into a module, one at a time, and its tests are run.

    python tools/mutants.py [--only privacy/guarantees] [--sample 20] [--seed 0]

A mutant is one changed operator, constant, condition, call or statement. It is *killed* when a test
fails (or runs past the time limit) and *survives* when all pass: then the line could be wrong
without anyone noticing. Mutants that change nothing a caller can see stand in harmless_mutants.txt,
each with its reason, and are not drawn.

The sources are copied to a temporary folder and changed there, never in place. Heavy libraries are
imported once; each mutant is tested in a forked child, which imports the changed copy afresh.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import difflib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "capelet"
HARMLESS = Path(__file__).with_name("harmless_mutants.txt")

# Module → the tests that must notice a fault in it. Tests of whole runs are left out: what only
# they notice, nobody can locate.
_ATTACKS = ["tests/attacks/test_attribute.py", "-k", "not noise and not rare and not planted"]
_ATTACKS[-1] += " and not linear_probes and not dead_and_huge and not more_draws"
_NO_TRAINING = [*_ATTACKS[:-1], f"{_ATTACKS[-1]} and not boosting and not mlp and not perceptron"]
TESTS: dict[str, list[str]] = {
    "privacy/guarantees": ["tests/privacy/test_guarantees.py"],
    "mechanisms/sampling": [
        "tests/mechanisms/test_sampling_exact.py",
        "tests/mechanisms/test_sampling.py",
    ],
    "mechanisms/vectors": ["tests/mechanisms/test_vectors.py"],
    "mechanisms/words": ["tests/mechanisms/test_words.py", "-k", "not encoder"],
    "mechanisms/vocabulary": ["tests/mechanisms/test_vocabulary.py"],
    "findings/metrics": ["tests/findings/test_metrics.py"],
    "data/splits": ["tests/data/test_splits.py", "-k", "not thousand"],
    "judge/bounds": ["tests/judge/test_bounds.py"],
    "judge/statistics": ["tests/judge/test_statistics.py"],
    "judge/event_search": ["tests/judge/test_event_search.py"],
    "judge/judge": ["tests/judge/test_verdict.py"],
    "judge/pairs": ["tests/judge/test_pairs.py"],
    "attacks/attribute": _NO_TRAINING,
    "attacks/families": _ATTACKS,
    "attacks/views": _NO_TRAINING,
    "attacks/committee": ["tests/attacks/test_committee.py"],
    "evaluation/leakage": ["tests/evaluation/test_leakage.py"],
    "workflows/settings_choice": ["tests/workflows/test_settings_choice.py"],
}
WARM = "numpy scipy.stats scipy.special scipy.optimize scipy.sparse.csgraph hypothesis.extra.numpy"
WARM += " sklearn.linear_model sklearn.neural_network sklearn.ensemble sklearn.metrics pytest"
GOAL = 0.9

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
TWINS = {"min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all", "floor": "ceil"}
TWINS |= {"ones": "zeros", "log": "log1p", "exp": "expm1", "cumsum": "sort", "mean": "sum"}
TWINS |= {twin: name for name, twin in list(TWINS.items()) if name not in ("log", "exp", "cumsum")}
# Calls whose first two arguments may be swapped without a difference worth a test, or which then
# raise at once.
UNORDERED = {"min", "max", "minimum", "maximum", "isinstance", "zip", "getattr", "setattr", "array"}
TYPES = {"int", "float", "str", "bool", "bytes", "list", "tuple", "None"}


@dataclass(frozen=True)
class Mutant:
    """One small fault: which bytes of the file are replaced by what."""

    module: str
    scope: str
    line: int
    span: tuple[int, int]
    new: str
    text: str  # the line as it becomes, or what is dropped

    @property
    def key(self) -> str:
        """What it is called in the list of harmless ones; no line number, so edits do not hurt."""
        return f"{self.module} {self.scope}: {self.text}"

    def apply(self, code: bytes) -> bytes:
        return code[: self.span[0]] + self.new.encode() + code[self.span[1] :]


class Finder:
    """All mutants of one module."""

    def __init__(self, module: str, code: bytes) -> None:
        self.module = module
        self.code = code
        lines = code.splitlines(keepends=True)
        self.starts = [sum(map(len, lines[:row])) for row in range(len(lines))]

    def mutants(self) -> list[Mutant]:
        every = self._walk(ast.parse(self.code), "module")
        unique = {(item.span, item.new): item for item in every}
        return [item for item in unique.values() if self._compiles(item)]

    def _compiles(self, mutant: Mutant) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            try:
                ast.parse(mutant.apply(self.code))
            except SyntaxError:
                return False
        return True

    def _change(self, node: ast.expr | ast.stmt, new: str, scope: str) -> Mutant:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        if isinstance(node, ast.stmt):
            old = " ".join(self.code[start:end].decode().split())
            return Mutant(self.module, scope, node.lineno, (start, end), new, f"{old} -> {new}")
        first = self.starts[node.lineno - 1]
        rest = self.code[end:].partition(b"\n")[0]
        line = self.code[first:start] + f"({new})".encode() + rest
        return Mutant(
            self.module,
            scope,
            node.lineno,
            (start, end),
            f"({new})",
            line.decode().partition("  # ")[0].strip(),
        )

    def _walk(self, node: ast.AST, scope: str) -> Iterator[Mutant]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name == "__repr__":
                return
            scope = node.name if scope == "module" else f"{scope}.{node.name}"
        if isinstance(node, ast.stmt | ast.expr):
            for new in _replacements(node):
                yield self._change(node, new, scope)
        for child in _children(node):
            yield from self._walk(child, scope)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What may hold a fault: no annotations, decorators, texts, error messages or `strict=`."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg in ("strict", "kind", "dtype"):
                continue
            if isinstance(child, ast.AST):
                yield child


def _replacements(node: ast.stmt | ast.expr) -> Iterator[str]:
    yield from _changed_statement(node) if isinstance(node, ast.stmt) else _changed(node)


def _changed_statement(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return None"
    elif isinstance(node, ast.Raise | ast.AugAssign | ast.Continue | ast.Break) or _acts(node):
        yield "pass"


def _acts(node: ast.stmt) -> bool:
    """A statement that can go without a name becoming unknown: a call, or x[i] = …, x.y = …"""
    if isinstance(node, ast.Assign):
        return not isinstance(node.targets[0], ast.Name | ast.Tuple)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _changed(node: ast.expr) -> Iterator[str]:
    """Other expressions in place of this one, as source."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            other = [*node.ops[:place], COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield ast.unparse(ast.Compare(node.left, other, node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        if not _is_text(node) and not _is_type(node):
            operator = ARITHMETIC[type(node.op)]()
            yield ast.unparse(ast.BinOp(node.left, operator, node.right))
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.unparse(ast.BoolOp(other, node.values))
    elif isinstance(node, ast.UnaryOp):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.IfExp):
        yield ast.unparse(ast.IfExp(node.test, node.orelse, node.body))
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node.value)
    elif isinstance(node, ast.Call):
        yield from _other_calls(node)


def _other_constants(value: object) -> Iterator[str]:
    if isinstance(value, bool):
        yield repr(not value)
    elif isinstance(value, int):
        yield repr(value + 1)
        if value:
            yield repr(value - 1)
    elif isinstance(value, float):
        yield repr(2 * value if value else 1.0)


def _other_calls(node: ast.Call) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in TWINS:
        twin = TWINS[name]
        function: ast.expr = ast.Name(twin)
        if isinstance(node.func, ast.Attribute):
            function = ast.Attribute(node.func.value, twin)
        yield ast.unparse(ast.Call(function, node.args, node.keywords))
    plain = len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2])
    if plain and name not in UNORDERED:
        first, second, *rest = node.args
        if ast.dump(first) == ast.dump(second):
            return
        yield ast.unparse(ast.Call(node.func, [second, first, *rest], node.keywords))


def _is_text(node: ast.BinOp) -> bool:
    def text(side: ast.expr) -> bool:
        plain = isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)
        return plain or isinstance(side, ast.JoinedStr)

    return text(node.left) or text(node.right)


def _is_type(node: ast.BinOp) -> bool:
    """`int | float`, which is a type and no arithmetic."""
    names = [ast.unparse(side).split(".")[-1] for side in (node.left, node.right)]
    return isinstance(node.op, ast.BitOr) and any(
        name in TYPES or name[:1].isupper() or "[" in name for name in names
    )


# ---- running -------------------------------------------------------------------------------------


class Bench:
    """A copy of the sources, and forked children that run tests on it."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "src"
        shutil.copytree(PACKAGE, self.sources / "capelet", ignore=shutil.ignore_patterns("*.pyc"))
        compileall.compile_dir(self.sources, quiet=2)
        for name in WARM.split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    @contextlib.contextmanager
    def mutation(self, module: str, code: bytes) -> Iterator[None]:
        """The copy with one file changed; its byte code is removed, since clocks are coarse."""
        file = self.sources / "capelet" / f"{module}.py"
        original = file.read_bytes()
        for cache in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            cache.unlink()
        file.write_bytes(code)
        try:
            yield
        finally:
            file.write_bytes(original)

    def passes(self, tests: list[str], limit: int, show: bool = False) -> bool:
        """Whether all tests pass within the limit, in a child of its own."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            result = 1
            try:
                result = self._test(tests, limit, show)
            finally:
                os._exit(result)
        _, status = os.waitpid(child, 0)
        return status == 0

    def _test(self, tests: list[str], limit: int, show: bool) -> int:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # past the limit the child is killed
        signal.alarm(limit)
        if not show:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.sources))
        os.environ["PYTHONPATH"] = str(self.sources)
        import pytest

        options = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis is warm
        setting = "addopts=--import-mode=importlib --strict-markers -m 'not slow'"
        return int(pytest.main([*options, "-o", setting, *tests]))


def harmless() -> dict[str, str]:
    """The mutants that nobody can notice → why; one `key  # reason` a line."""
    if not HARMLESS.exists():
        return {}
    lines = HARMLESS.read_text(encoding="utf-8").splitlines()
    pairs = (line.rpartition("  # ") for line in lines if line and not line.startswith("#"))
    return {key.strip(): reason for key, _, reason in pairs}


def judge(bench: Bench, module: str, sample: int, seed: int) -> float:
    """The share of a sample of mutants that the tests kill."""
    code = (PACKAGE / f"{module}.py").read_bytes()
    every = Finder(module, code).mutants()
    excused = harmless()
    for key in excused:
        if key.startswith(f"{module} ") and key not in {item.key for item in every}:
            print(f"  listed as harmless, but no mutant any more: {key}")
    candidates = [item for item in every if item.key not in excused]
    mutants = random.Random(f"{seed} {module}").sample(candidates, min(sample, len(candidates)))
    began = time.monotonic()
    if not bench.passes(TESTS[module], 600, show=True):
        raise SystemExit(f"{module}: the tests fail without any mutant")
    limit = int(5 * (time.monotonic() - began)) + 10
    survivors = []
    for mutant in mutants:
        with bench.mutation(module, mutant.apply(code)):
            if bench.passes(TESTS[module], limit):
                survivors.append(mutant)
                _show(mutant, code)
    killed = 1 - len(survivors) / max(len(mutants), 1)
    spared = len(every) - len(candidates)
    print(
        f"{module:24} {killed:5.0%} killed of {len(mutants)} drawn from {len(candidates)} "
        f"({spared} harmless), {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return killed


def _show(mutant: Mutant, code: bytes) -> None:
    """Where a survivor stands, how it is called in the list, and its diff."""
    print(f"  SURVIVED src/capelet/{mutant.module}.py:{mutant.line}\n    {mutant.key}")
    lines = [text.decode().splitlines() for text in (code, mutant.apply(code))]
    for line in list(difflib.unified_diff(*lines, lineterm="", n=0))[3:]:
        print(f"    {line}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Put small faults in; see whether tests notice.")
    parser.add_argument("--only", action="append", choices=TESTS, help="one module; repeatable")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="which mutants are drawn")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        shares = {
            module: judge(bench, module, arguments.sample, arguments.seed)
            for module in arguments.only or TESTS
        }
    weak = [module for module, killed in shares.items() if killed < GOAL]
    if weak:
        raise SystemExit(f"below {GOAL:.0%}: {', '.join(weak)}")


if __name__ == "__main__":
    main()
