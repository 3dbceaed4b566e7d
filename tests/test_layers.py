"""Imports go only downwards through the layers, and within a layer only to the left."""

from __future__ import annotations

import ast
from pathlib import Path

import capelet

LAYERS = [
    ["errors", "files", "silence", "numerics", "interfaces", "engines"],
    ["question", "data", "privacy", "findings"],
    ["ledger", "training", "encoders"],
    ["mechanisms"],
    ["release"],
    ["judge", "defences", "attacks", "language"],
    ["evaluation"],
    ["workflows"],
    ["reports", "studies"],
    ["service", "integrations", "client", "cli"],
]
ALONE = {"judge", "defences", "attacks", "language"}
PLACE = {
    room: (layer, place) for layer, rooms in enumerate(LAYERS) for place, room in enumerate(rooms)
}
SOURCE = Path(capelet.__file__).parent


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(code: str) -> set[str]:
    """The rooms of capelet that this code imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(_without_type_checking(ast.parse(code))):
        if isinstance(node, ast.Import):
            found |= {
                alias.name.split(".")[1]
                for alias in node.names
                if alias.name.startswith("capelet.")
            }
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            if parts[0] == "capelet":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found - {"__version__"}


def _without_type_checking(tree: ast.Module) -> ast.Module:
    """The code as it runs: what only the type checker imports binds no room to another."""
    kept = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.Module(body=kept, type_ignores=[])


def wrong_imports(room: str, code: str) -> list[str]:
    wrong = []
    for other in imported_rooms(code) - {room}:
        allowed = PLACE[other] < PLACE[room] and not (room in ALONE and other in ALONE)
        if not allowed:
            wrong.append(f"{room} imports {other}")
    return wrong


def test_every_room_has_a_place() -> None:
    rooms = {room_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"}
    assert rooms <= set(PLACE), f"give these a layer: {sorted(rooms - set(PLACE))}"


def test_imports_go_downwards() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path.parent == SOURCE and path.stem == "__init__":
            continue
        wrong += wrong_imports(room_of(path), path.read_text(encoding="utf-8"))
    assert not wrong


# Who fits a scikit-learn estimator outside `attacks` and `evaluation`: topics that are read off
# texts, the directions that a bottleneck begins from, the adapter.
FITTERS = {
    "data/labels.py",
    "defences/bottleneck.py",
    "integrations/scikit_learn.py",
}


def test_only_evaluation_calls_attackers() -> None:
    """One road: what one door measures, every door does."""
    callers, fitters = set(), set()
    for path in SOURCE.rglob("*.py"):
        if room_of(path) in ("attacks", "evaluation"):
            continue
        code, name = path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix()
        if "attacks" in imported_rooms(code):
            callers.add(name)
        if any(line.strip().startswith("from sklearn.") for line in code.splitlines()):
            fitters.add(name)
    assert not callers and fitters == FITTERS


def test_the_check_can_fail() -> None:
    assert wrong_imports("data", "def f():\n    from capelet.workflows.audit import audit\n")
    assert wrong_imports("defences", "import capelet.attacks.attribute\n")
    assert wrong_imports("data", "from capelet import findings\n")
    assert not wrong_imports("workflows", "from capelet.data.corpus import Corpus\n")


def test_rooms_do_not_import_each_other_at_import_time() -> None:
    """`import capelet` stays cheap: no model framework, no numpy even."""
    import subprocess
    import sys

    code = (
        "import sys, capelet, capelet.cli\n"
        "print([name for name in ('torch', 'numpy', 'sklearn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
