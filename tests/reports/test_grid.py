"""A grid of values: every number printed, holes as dashes, words of users escaped."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from capelet.reports.draw.grid import Grid, heat_grid
from capelet.reports.draw.svg import standalone


def grid(values: tuple[tuple[float | None, ...], ...]) -> Grid:
    return Grid("ε", "<λ>", ("1", "8"), ("0.1", "a&b"), values, "accuracy")


def test_numbers_and_holes() -> None:
    drawing = heat_grid(grid(((0.5, None), (math.nan, 0.75))), "Leakage")
    root = ElementTree.fromstring(standalone(drawing))
    words = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"50.0 %", "75.0 %", "<λ> →", "a&b"} <= set(words)
    assert words.count("–") == 2
    assert "ε 8, <λ> a&b: 75.0 %" in (root.get("aria-label") or "")


def test_equal_values_are_equally_pale() -> None:
    drawing = heat_grid(grid(((0.5, 0.5), (0.5, 0.5))), "Leakage")
    assert set(re.findall(r'fill-opacity="([\d.]+)"', drawing)) == {"0.00"}
    drawing = heat_grid(grid(((0.5, 0.5), (0.5, 0.6))), "Leakage")
    assert set(re.findall(r'fill-opacity="([\d.]+)"', drawing)) == {"0.00", "0.55"}
