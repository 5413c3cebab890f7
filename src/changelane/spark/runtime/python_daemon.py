# SPDX-License-Identifier: Apache-2.0
"""The process from which Spark forks the Python workers of a local run (``spark.python.daemon``).

Spark's own daemon imports PySpark from ``pyspark.zip``, which has no byte code, and each of its
workers imports pyarrow and changelane. This one imports PySpark from where it is installed,
and the other modules before it forks. A local run uses it; in a cluster Spark's own one runs.

PySpark invalidates the caches of imports before each task. An archive on the import path, such as
Spark's jar, then takes some 25 ms, because Python lists its files again.
"""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Final

MODULE: Final = "changelane.spark.runtime.python_daemon"

_ARCHIVE_FOLDERS: Final = (("pyspark", "python", "lib"), ("pyspark", "jars"))
"""The folders of PySpark's sources and of Spark's jar: Spark adds both to the import path."""
_MODULES: Final = ("pyarrow", "changelane.spark.rows.decode")
"""The modules of almost every task."""
_GARBAGE: Final = "changelane.spark.runtime.garbage"


def remove_archives_of_spark(paths: list[str]) -> None:
    """Remove the archives with PySpark's sources from an import path that has PySpark itself."""
    folders = {Path(path).resolve() for path in paths}
    paths[:] = [path for path in paths if not _is_archive_of_spark(Path(path).resolve(), folders)]


def _is_archive_of_spark(path: Path, folders: set[Path]) -> bool:
    return any(
        path.parent.parts[-len(parts) :] == parts and path.parents[len(parts)] in folders
        for parts in _ARCHIVE_FOLDERS
    )


def main() -> None:
    """Import the modules of tasks, and fork workers until Spark ends the process."""
    remove_archives_of_spark(sys.path)
    sys.path_importer_cache.clear()  # the importers of the archives, too
    if sys.platform == "linux":  # libraries of other systems may not work after a fork
        with contextlib.suppress(ImportError):  # the task reports it
            for name in _MODULES:
                importlib.import_module(name)
            importlib.import_module(_GARBAGE).freeze_modules()
    daemon = importlib.import_module("pyspark.daemon")
    daemon.manager()


if __name__ == "__main__":
    main()
