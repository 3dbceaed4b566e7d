"""Make `docs/tutorials/notebook.ipynb`: run its cells in one namespace and keep what they show.

A notebook is JSON, and a cell's result is what Python's `repr` and the object's own HTML say. So
neither Jupyter nor a kernel is needed to execute one, here or in the tests.

    python tools/notebook.py            # run all cells, and write their outputs down
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs/tutorials/notebook.ipynb"


def run_cell(source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and what its last expression shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": data})
    return outputs


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of all its cells, run in order."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["outputs"] = run_cell("".join(cell["source"]), namespace)
            cell["execution_count"] = count
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = count
    return notebook


def main() -> None:
    notebook = run_notebook(json.loads(PAGE.read_text("utf-8")))
    PAGE.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
