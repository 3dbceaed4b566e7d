"""Pictures of the tops of three pages for the docs, at the width of a desk and of a phone.

    capelet protect reviews --purpose task --epsilon 4 --seeds 2 --out runs/task
    capelet protect reviews --purpose search --seeds 2 --out runs/search
    capelet audit few.parquet --text text --label stars --private gender,age_group,country \
        --author writer --encoder runs/search --seeds 2 --out runs/few
    python tools/tops.py runs docs/images

`few.parquet` holds the texts of the first 60 writers of `reviews`, too few to decide anything.
Chromium must be on the path.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DESK, PHONE = 1280, 390
# By picture: the run, and the heights on a desk and on a phone, so that no line is cut in half.
PICTURES = {
    "top-task": ("task", 790, 930),
    "top-search": ("search", 720, 910),
    "top-inconclusive": ("few", 1262, 1256),
}
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
)


def main(runs: str, target: str) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("chromium is not on the path")
    with tempfile.TemporaryDirectory() as profile:
        for name, (run, desk, phone) in PICTURES.items():
            page = (Path(runs) / run / "report.html").resolve().as_uri()
            for ending, width, height in (("", DESK, desk), ("-phone", PHONE, phone)):
                picture = Path(target).resolve() / f"{name}{ending}.png"
                size = f"--window-size={width},{height}"
                profile_flag = f"--user-data-dir={profile}"
                command = [browser, *FLAGS, profile_flag, size, f"--screenshot={picture}", page]
                subprocess.run(command, check=True, capture_output=True, timeout=120)
                print(picture.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
