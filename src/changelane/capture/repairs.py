# SPDX-License-Identifier: Apache-2.0
"""Records that another process than the capture adds to a capture log: repaired rows.

Only the capture process writes the log. So a repair is a file in the folder ``repairs`` of the log,
which the capture process adds to its next publication and then deletes. If it ends in between, the
records are in the log twice; they have the same positions, so that tables stay the same.
"""

import uuid
from typing import Final

import msgspec

from changelane.capture.manifest import CapturedRecord
from changelane.capture.storage import Folder

_FOLDER: Final = "repairs"
_SUFFIX: Final = ".json"


class Repair(msgspec.Struct, frozen=True):
    """The records of one file.

    Attributes:
        history: The history of the log (``Manifest.history``) that has their positions.
        records: The records.
    """

    history: int
    records: tuple[CapturedRecord, ...]


def add_repair(folder: Folder, repair: Repair) -> str:
    """Write a repair for the capture process, and return its name."""
    name = f"{uuid.uuid4()}{_SUFFIX}"
    folder.create(f"{_FOLDER}/{name}", msgspec.json.encode(repair))
    return name


def repair_names(folder: Folder) -> list[str]:
    """Return the names of the repairs that wait."""
    names = folder.names(_FOLDER)
    return sorted(name for name in names if name.endswith(_SUFFIX) and not name.startswith("."))


def read_repair(folder: Folder, name: str) -> Repair | None:
    """Return a repair; ``None`` = it was withdrawn, or its file is damaged."""
    try:
        return msgspec.json.decode(folder.read(f"{_FOLDER}/{name}"), type=Repair)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def delete_repair(folder: Folder, name: str) -> None:
    """Delete a repair that is in the log, or that nothing can apply."""
    folder.delete(f"{_FOLDER}/{name}")
