"""What only the owner of a model may keep of its training: outside the folder that ships.

A digest of the texts confirms a guessed text to whoever knows the others; exact numbers and
perplexities tell of one text more or less, whatever ε the weights have; whose the canaries are is a
list of people. `capelet lm attack` needs all three. So they lie in the user's state folder
(`CAPELET_STATE`, else `~/.local/state/capelet`), readable by their owner only, under a random id;
the model's folder has the id and nothing else of it.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from capelet.files import private_folder, state_folder, write_whole

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Record:
    """The digest of all texts, exact figures, and whose each canary is."""

    digest: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    canary_authors: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    def under(self, name: str) -> Record:
        """The same record under this id, if that is free or its own; a run killed at its end is so.

        Another training's record stays: a copy of its model may be anywhere.
        """
        other = Record.find(name)
        is_free = _ID.fullmatch(name) is not None and other is None
        candidate = replace(self, id=name)
        is_own = other is not None and other.to_json() == candidate.to_json()
        return candidate if is_free or is_own else self

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False) + "\n"

    def keep(self) -> Path:
        """Write it to the state folder, readable by its owner only."""
        private_folder(state_folder())
        path = private_folder(state_folder() / "language") / f"{self.id}.json"
        write_whole(path, self.to_json(), 0o600)
        return path

    @classmethod
    def find(cls, name: str) -> Record | None:
        """The record with this id; None where this user has none."""
        # The id may come from anybody's folder, and must not name a file elsewhere.
        if not _ID.fullmatch(name):
            return None
        try:
            path = state_folder() / "language" / f"{name}.json"
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                str(content["digest"]),
                dict(content["figures"]),
                tuple(content["canary_authors"]),
                name,
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None


def digest_of(texts: Sequence[str]) -> str:
    """A hash that tells whether two lists of texts are the same, and nothing else."""
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return total.hexdigest()
