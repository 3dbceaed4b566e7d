"""A table of a page as LaTeX, for a paper: `booktabs` rules, every sign of a user escaped."""

from __future__ import annotations

import re

from capelet.reports.page import Line, Table, Words

# What our tables print beyond ASCII; LaTeX's own fonts lack these signs.
_SIGNS = {
    "−": "$-$",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "²": r"$^{2}$",
    "★": r"$\star$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "η": r"$\eta$",
    "δ": r"$\delta$",
    "→": r"$\to$",
    "…": r"\ldots{}",
    "’": "'",
}
# The ten signs that TeX reads as commands, and < > which old encodings print as others.
_COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_ESCAPES = {**_SIGNS, **_COMMANDS}


def escape(content: Words) -> str:
    r"""Text that LaTeX prints as it is, on one line.

    >>> escape("a_b & 50 % of ε"), escape("\\input{x}")
    ('a\\_b \\& 50~\\% of $\\varepsilon$', '\\textbackslash{}input\\{x\\}')
    """
    pieces = content if isinstance(content, tuple) else (content,)
    line = " ".join("".join(map(str, pieces)).split())
    # Sign by sign in one pass: an escape must not be escaped again.
    line = "".join(_ESCAPES.get(sign, sign) for sign in line if sign.isprintable())
    # A number stays with its per cent sign.
    return re.sub(r"(\d) (\\%)", r"\1~\2", line)


def table(item: Table) -> str:
    """The table with its title as caption and its note below; numbers to the right."""
    columns = "".join("l" if place < item.words else "r" for place in range(len(item.columns)))
    body = [_line(line) for line in item.lines]
    note = [rf"\par\smallskip\footnotesize {escape(item.note)}"] if item.note else []
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(item.title)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            _cells(item.columns),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *note,
            r"\end{table}",
            "",
        ]
    )


def _line(line: Line) -> str:
    if line.role == "strong":
        return _cells(line.cells, r"\textbf")
    return _cells(line.cells, r"\emph" if line.role == "control" else "")


def _cells(cells: tuple[Words, ...], command: str = "") -> str:
    first, *others = map(escape, cells)
    # A bracket at the head of a line would be read as an option of the line break before it.
    head = f"{command}{{{first}}}" if command else f"{{}}{first}"
    return " & ".join([head, *others]) + r" \\"
