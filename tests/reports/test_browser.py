"""In a real browser, at desk and phone width: nothing overflows, nothing is empty."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from capelet.findings import Findings
from capelet.reports import write_comparison, write_protection, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--allow-file-access-from-files",
]
# The browser's own window cannot be narrower than about 500 px, so the page is framed.
FRAME = """<!doctype html><title>waiting</title><body style="margin:0">
<iframe id="f" src="{page}" style="width:{width}px;height:900px;border:0"></iframe>
<script>
document.getElementById("f").onload = event => {{
  const inner = event.target.contentDocument.documentElement;
  const wide = [...inner.querySelectorAll("svg.bars, .card, figure, h1, pre, nav, .facts, .leaves")]
    .filter(item => item.getBoundingClientRect().right > {width} + 1);
  document.body.innerHTML = `scroll=${{inner.scrollWidth}} wide=${{wide.length}} ` +
    `cards=${{inner.querySelectorAll(".card, .judged").length}}`;
}};
</script>"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is not on PATH, so the page cannot be opened in a browser"
)


def _browse(folder: Path, page: Path, *more: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *more, page.as_uri()]
    environment = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


@pytest.fixture(scope="module")
def pages(
    findings: Findings,
    protected: Findings,
    after: Findings,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "report": write_report(findings, folder),
        "comparison": write_comparison(findings, protected, folder),
        "protected": write_report(protected, folder / "protected"),
        "protection": write_protection(findings, after, folder / "protection"),
    }


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["report", "comparison", "protected", "protection"])
def test_nothing_overflows(pages: dict[str, Path], name: str, width: int, tmp_path: Path) -> None:
    frame = pages[name].parent / f"frame-{name}-{width}.html"
    frame.write_text(FRAME.format(page=pages[name].name, width=width), encoding="utf-8")
    seen = _browse(
        tmp_path, frame, "--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom"
    )
    found = re.search(r"scroll=(\d+) wide=(\d+) cards=(\d+)", seen)
    assert found is not None, seen[-500:]
    scroll, wide, cards = (int(number) for number in found.groups())
    assert scroll <= width
    assert wide == 0
    assert cards >= 3


def test_a_screenshot_can_be_taken(pages: dict[str, Path], tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    _browse(tmp_path, pages["report"], "--window-size=1280,1600", f"--screenshot={picture}")
    content = picture.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) > 50_000  # a blank page of this size has some 10 kB
