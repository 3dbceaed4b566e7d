"""Count what makes a codebase easy or hard to read; the figures of the changelog.

    python tools/figures.py [FOLDER]          src/capelet by default

Rooms, sizes of files and functions, parameters, comments, and the share of names that are bare
participles (`found`, `kept`): a line should be readable without its history, so values are named
by nouns. The irregular participles are in participles.txt; a name that ends in -ed counts unless
it is listed there as a noun. Pairs of alike places are counted by whatever duplicate finder is at
hand, not here.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent


def word_list() -> tuple[set[str], set[str]]:
    """The irregular participles, and the nouns and verbs that only look like regular ones."""
    participles: set[str] = set()
    others: set[str] = set()
    for line in (HERE / "participles.txt").read_text(encoding="utf-8").splitlines():
        words = line.partition("#")[0].split()
        for word in words:
            (others.add(word[1:]) if word.startswith("!") else participles.add(word))
    return participles, others


def bindings(tree: ast.AST) -> Iterator[str]:
    """Every name that the code binds: variables, fields, parameters, functions, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def is_participle(name: str, participles: set[str], others: set[str]) -> bool:
    """Whether a name is one bare participle; `fitted_map` says what it is and is none.

    >>> is_participle("_found", {"found"}, set()), is_participle("seed", set(), {"seed"})
    (True, False)
    """
    bare = name.strip("_")
    word = bare.lower()
    if word in others or any(letter.isupper() for letter in bare[1:] if not bare.isupper()):
        return False
    return word in participles or (word.endswith("ed") and word.isalpha() and len(word) > 3)


def comments(code: str) -> int:
    """Lines that hold a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})


def quantile(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return len([arg for arg in every if arg.arg not in ("self", "cls")])


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "src/capelet")
    participles, others = word_list()
    files: list[int] = []
    functions: list[tuple[int, str]] = []
    widest: list[tuple[int, str]] = []
    names: Counter[str] = Counter()
    remarks = code_lines = 0
    for path in sorted(folder.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        files.append(code.count("\n"))
        code_lines += sum(1 for line in code.splitlines() if line.strip())
        remarks += comments(code)
        tree = ast.parse(code)
        names.update(bindings(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                where = f"{path.relative_to(folder)}:{node.name}"
                functions.append(((node.end_lineno or 0) - node.lineno + 1, where))
                # A command's parameters are its options: they are counted in its --help.
                if "cli" not in path.absolute().parts:
                    widest.append((parameters(node), where))
    bare = {name: n for name, n in names.items() if is_participle(name, participles, others)}
    share = 100 * sum(bare.values()) / sum(names.values())
    visible = (item for item in folder.iterdir() if item.name[0] not in "._")
    rooms = [item for item in visible if item.is_dir() or item.suffix == ".py"]
    lengths = [size for size, _ in functions]
    longest, most = max(functions), max(widest, default=(0, ""))
    print(f"top-level rooms          {len(rooms)}")
    print(f"files                    {len(files)}")
    print(f"lines of a file          median {quantile(files, 0.5)}, 95 % {quantile(files, 0.95)}")
    print(f"lines of a function      95 % {quantile(lengths, 0.95)}, most {longest[0]}")
    print(f"longest function         {longest[1]}")
    print(f"most parameters          {most[0]} {most[1]} (commands left out)")
    print(f"participles              {share:.2f} % of {sum(names.values())} bindings")
    print(f"comments per 100 lines   {100 * remarks / code_lines:.1f}")
    if "--names" in sys.argv:
        print(", ".join(f"{name} {n}" for name, n in Counter(bare).most_common()))


if __name__ == "__main__":
    main()
