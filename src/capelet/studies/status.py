"""How far a study is: which cells it has, how many are stored, and how long the rest will take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from capelet.errors import OutputError
from capelet.files import writable_folder, write_whole
from capelet.studies.plan import PlannedCell, StudyPlan
from capelet.studies.store import Store

STUDY = "study.json"


def write_study(
    folder: Path, plan: StudyPlan, size: str, cells: Sequence[PlannedCell], store: Store
) -> None:
    """Keep which cells a study has and where they are stored, for `status`."""
    account = {
        "schema": 1,
        "name": plan.name,
        "size": size,
        "store": str(store.folder.resolve()),
        "cells": [{"key": item.cell.key, "axes": dict(item.axes)} for item in cells],
    }
    write_whole(writable_folder(folder) / STUDY, json.dumps(account, indent=1) + "\n")


@dataclass(frozen=True)
class Status:
    """How far a study is, as anybody can see who may read its folder."""

    name: str
    size: str
    cells: int
    stored_cells: int
    running: int
    failures: tuple[str, ...]
    seconds_left: float | None

    @property
    def missing(self) -> int:
        return self.cells - self.stored_cells - len(self.failures)

    @classmethod
    def read(cls, folder: Path | str) -> Status:
        path = Path(folder) / STUDY
        try:
            account = json.loads(path.read_bytes())
            keys = [str(item["key"]) for item in account["cells"]]
            name, size, place = account["name"], account["size"], account["store"]
        except (OSError, ValueError, KeyError, TypeError):
            raise OutputError(
                f"no study in {str(folder)!r}; give a folder that `capelet study` wrote"
            ) from None
        store = Store(place)
        stored_keys = [key for key in keys if key in store]
        failures = [store.failure(key) for key in keys if key not in store]
        reasons = tuple(reason for reason in failures if reason is not None)
        running = sum(store.is_claimed(key) for key in keys if key not in store)
        left = len(keys) - len(stored_keys) - len(reasons)
        times = [store.meta(key).seconds for key in stored_keys]
        seconds = fmean(times) * left / max(1, running) if times else None
        return cls(str(name), str(size), len(keys), len(stored_keys), running, reasons, seconds)
