"""The target of a folder: numbered parts, and a manifest that says what they are.

All of it appears by one rename. The manifest must not tell what the vectors do not: it holds no
name of a source file, no count of texts that were released before, and no plain digest of the
texts. Of a digest anybody who knows all texts but one could try candidates for the last. What
recognises the run again is a hash under a key that never leaves this user, over a number that is
new in every run: without that number, two releases would show whether their texts are all equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from capelet.errors import OutputError
from capelet.files import onto_disk, sha256_of_file, sync, write_whole
from capelet.privacy.origins import keyed_name
from capelet.release.jobs import Job
from capelet.release.partial_output import PartialOutput

# With an underscore: whatever reads a folder as one Parquet table passes it over.
MANIFEST = "_manifest.json"
_SCHEMA = 1


def part_name(number: int) -> str:
    """The file of a part in the target; in order of rows."""
    return f"part-{number:06d}.parquet"


def plan_of(job: Job, rows: str, ledger: str) -> str:
    """What a run is, as one digest: job, rows, ledger. It stays on this machine."""
    return hashlib.sha256(json.dumps([job.facts(), rows, ledger]).encode()).hexdigest()


def gather(job: Job, parts: PartialOutput, starts: Sequence[int], plan: str, width: int) -> None:
    """Make the whole folder, on the disk and ready to be let out; `starts` ends with all rows."""
    numbers = range(len(starts) - 1)
    whole = parts.whole_folder(numbers, {number: part_name(number) for number in numbers})
    entries = [
        {
            "file": part_name(number),
            "rows": [starts[number], starts[number + 1]],
            "bytes": (whole / part_name(number)).stat().st_size,
            "sha256": sha256_of_file(whole / part_name(number)),
        }
        for number in numbers
    ]
    salt = secrets.token_hex(16)
    content = {
        "schema": _SCHEMA,
        "rows": starts[-1],
        "dimension": width,
        **job.description(),
        "run": {"salt": salt, "name": keyed_name(salt + plan)},
        "parts": entries,
    }
    with onto_disk(job.target):
        text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        write_whole(whole / MANIFEST, text)
        last = (whole / MANIFEST).stat()
        for entry in entries:
            path = whole / str(entry["file"])
            # As the user's umask has it: until now the parts were for their owner only.
            path.chmod(last.st_mode & 0o777)
            # One time for all: a part that came from the ledger was quicker than one that was
            # drawn, and the times would tell whose texts were released before.
            os.utime(path, ns=(last.st_mtime_ns, last.st_mtime_ns))
        sync(whole)


def read(target: Path) -> dict[str, Any] | None:
    """The manifest of a target; None where there is none that can be read."""
    try:
        content = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        return content if content["schema"] == _SCHEMA and content["run"]["salt"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_same_run(manifest: dict[str, Any], plan: str) -> bool:
    """Whether a manifest is of this very run, as far as this user can tell."""
    run = manifest["run"]
    return bool(run["name"] == keyed_name(str(run["salt"]) + plan))


def check_parts(target: Path, manifest: dict[str, Any]) -> None:
    """Refuse a target that lacks a part: it was let out, and is not drawn again."""
    for entry in manifest["parts"]:
        path = target / str(entry["file"])
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            raise OutputError(
                f"{str(target)!r} was released by this command before, and {entry['file']!r} is "
                "gone from it or changed; to draw it again would be a second release. Bring it "
                "back from a copy, or release into another folder, which costs as much again"
            )
