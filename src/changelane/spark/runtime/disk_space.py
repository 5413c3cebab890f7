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
        folders: The folders that it writes to. Those in object stores are left out, and those on
            the device of an earlier one.
    """
    free_bytes: dict[int, tuple[int, str]] = {}
    for folder in folders:
        existing = _existing_folder(folder)
        if existing is not None:
            device = existing.stat().st_dev
            free_bytes.setdefault(device, (shutil.disk_usage(existing).free, folder))
    sizes = ", ".join(
        f"{size_text(size)} in {folder}" for size, folder in sorted(free_bytes.values())
    )
    return (
        "a file of the run cannot grow, because a disk is full, or a quota or a limit of the size "
        f"of files is reached (free: {sizes or 'unknown'}); free some space and run again, nothing "
        "is lost"
    )


def _existing_folder(folder: str) -> Path | None:
    """Return a folder, or the nearest one above it; ``None`` = it is not mounted here."""
    if "://" in folder and not folder.startswith("file:"):
        return None
    path = Path(folder.removeprefix("file:")).absolute()
    return next((parent for parent in (path, *path.parents) if parent.is_dir()), None)
