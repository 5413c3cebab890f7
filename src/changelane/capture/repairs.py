# SPDX-License-Identifier: Apache-2.0
"""Records that another process than the capture process adds to a capture log.

They are rows that were read again: those that ``verify`` repairs, and those of snapshots of single
tables. Only the capture process writes the log. So a repair is a file in the folder ``repairs`` of
the log, which the capture process adds to its next publication and then deletes. If it ends in
between, records are in the log twice; they have the same positions, so that tables stay the same.
Segments are never in two manifests, because the retention deletes them with the first one.
"""

import uuid
from typing import Final

import msgspec

from changelane.capture.manifest import CapturedRecord, Segment
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import Folder

_FOLDER: Final = "repairs"
_SUFFIX: Final = ".json"


class Repair(msgspec.Struct, frozen=True):
    """The content of one file.

    Attributes:
        history: The history of the log (``Manifest.history``) that has the positions.
        records: Records.
        segments: Segments in the storage, instead of records; their first offsets are 0.
        follows: The number of the newest manifest when the repair was first written.
    """

    history: int
    records: tuple[CapturedRecord, ...] = ()
    segments: tuple[Segment, ...] = ()
    follows: int = 0


def add_repair(folder: Folder, repair: Repair, name: str | None = None) -> str:
    """Write a repair for the capture process, and return its name.

    Args:
        folder: The storage of the log.
        repair: The repair.
        name: A name that no other repair has; ``None`` = a new one.
    """
    name = name or f"{uuid.uuid4()}{_SUFFIX}"
    folder.replace(f"{_FOLDER}/{name}", msgspec.json.encode(repair))
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


def are_publishable(log: CaptureLog, repair: Repair) -> bool:
    """Whether a repair has segments that are all in the storage, and that no manifest has.

    Raises:
        ExpiredManifestError: The retention deleted a manifest at this moment.
    """
    names = {segment.name for segment in repair.segments}
    are_stored = names <= set(log.folder.names("segments"))
    return bool(names) and are_stored and not names & segments_after(log, repair.follows)


def segments_after(log: CaptureLog, sequence: int) -> set[str]:
    """Return the names of the segments of all manifests after a number.

    Raises:
        ExpiredManifestError: The retention deleted a manifest at this moment.
    """
    later = [number for number in log.sequences() if number > sequence]
    return {segment.name for number in later for segment in log.manifest(number).segments}
