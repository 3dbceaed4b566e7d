"""A grid of values: every number printed, holes as dashes, words of users escaped."""

from __future__ import annotations

import math
import re
from importlib import resources
from xml.etree import ElementTree

from capelet.reports.draw.bars import Bar, bars
from capelet.reports.draw.grid import Grid, heat_grid
from capelet.reports.draw.svg import _PAGE_WIDTH, MARGIN, standalone


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


def test_a_picture_that_is_a_file_has_a_margin_on_every_side() -> None:
    """Text at the very edge would touch what stands beside the image."""
    dots = bars([Bar("first", 0.0), Bar("second", 1.0)], "Leakage")
    for drawing in (heat_grid(grid(((0.5, 0.5), (0.5, 0.5))), "Leakage"), dots):
        root = ElementTree.fromstring(standalone(drawing))
        (frame,) = root.findall("{http://www.w3.org/2000/svg}svg")
        assert frame.get("x") == frame.get("y") == str(MARGIN)
        for side in ("width", "height"):
            assert float(root.get(side, 0)) == float(frame.get(side, 0)) + 2 * MARGIN
        # All that is drawn lies within, and the page's rule of a panel's width does not reach it.
        assert not root.findall("{http://www.w3.org/2000/svg}text")
        assert "width: 100%" not in standalone(drawing)
    # On a page the picture has the page's own margin, and begins at its edge.
    assert 'x="0"' in dots and "overflow" not in dots


def test_the_rule_that_a_file_leaves_out_is_one_of_the_page() -> None:
    style = resources.files("capelet.reports").joinpath("templates/style.css").read_text("utf-8")
    assert "width: 100%" in style and _PAGE_WIDTH in style.splitlines()
