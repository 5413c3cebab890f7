# SPDX-License-Identifier: Apache-2.0
"""Directories of zip archives on the import path: read again only when the file is another one.

Before each task Spark's Python worker calls ``importlib.invalidate_caches``. Up to Python 3.12
every importer of an archive, one for each package in it, reads the whole directory at once then:
0.2 s a task for ``pyspark.zip``, which no task changes.
"""

import sys
import zipimport
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

_WORKERS: Final = ("pyspark.daemon", "pyspark.worker")

_Stamp = tuple[int, ...]


def is_worker() -> bool:
    """Say whether this process is one of Spark's Python workers."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) in _WORKERS


def keep_zip_directories() -> None:
    """Let this process read the directory of a zip archive again only when its file changed."""
    reread = zipimport.zipimporter.invalidate_caches
    stamps: WeakKeyDictionary[zipimport.zipimporter, _Stamp | None] = WeakKeyDictionary()
    for importer in sys.path_importer_cache.values():
        if isinstance(importer, zipimport.zipimporter):
            stamps[importer] = _stamp(importer.archive)

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        stamp = _stamp(self.archive)
        if stamp is None or stamps.get(self) != stamp:
            reread(self)
            # after a file that could not be read, the next task tries again
            stamps[self] = stamp if getattr(self, "_files", True) else None

    # nothing else reaches the importers that there are: Spark's call asks each of them by itself
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


def _stamp(archive: str) -> _Stamp | None:
    """Return what tells a file from what it was before; ``None`` when it is not there."""
    try:
        status = Path(archive).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
