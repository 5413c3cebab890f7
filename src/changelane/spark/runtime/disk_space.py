# SPDX-License-Identifier: Apache-2.0
"""Full disks: errors that they cause, and the free space of the folders that a run writes to."""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from changelane.capture.finding import size_text
from changelane.spark.runtime.redact import error_chain

_FULL_DISK: Final = re.compile(r"No space left on device|Disk quota exceeded|File too large")


def is_full_disk(error: BaseException) -> bool:
    """Whether a disk is full, or a quota or a limit of the size of files is reached."""
    return any(_FULL_DISK.search(str(cause)) for cause in error_chain(error))


def full_disk_sentence(folders: Iterable[str]) -> str:
    """Return why a run failed whose files cannot grow, with the free space of its folders.

    Args:
        folders: The folders that it writes to; those of other machines are left out.
    """
    free_bytes = {folder: _free_bytes(folder) for folder in folders}
    known = sorted((size, folder) for folder, size in free_bytes.items() if size is not None)
    sizes = ", ".join(f"{size_text(size)} in {folder}" for size, folder in known)
    return (
        "a file of the run cannot grow, because a disk is full, or a quota or a limit of the size "
        f"of files is reached (free: {sizes or 'unknown'}); free some space and run again, nothing "
        "is lost"
    )


def _free_bytes(folder: str) -> int | None:
    """Return the free bytes of the file system of a folder; ``None`` = it is not mounted here."""
    scheme, separator, rest = folder.partition(":")
    path = Path(rest if separator and scheme == "file" else folder)
    if "://" in folder and scheme != "file":
        return None
    try:
        existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        return shutil.disk_usage(existing).free
    except OSError:
        return None
