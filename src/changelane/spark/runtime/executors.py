# SPDX-License-Identifier: Apache-2.0
"""The Python of a cluster's executors: the archive for them, and the check of their packages."""

import importlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from changelane.errors import ConfigError
from changelane.spark.runtime import archive
from changelane.spark.runtime.archive import fingerprint, python_version
from changelane.spark.runtime.redact import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_changelane_packages"
"""The name of the unpacked archive in an executor's working folder."""

PYTHONPATH: Final = "spark.executorEnv.PYTHONPATH"
PYTHON: Final = "spark.pyspark.python"

_REQUIRED_MODULES: Final = ("pyarrow", "pandas", "changelane.spark.rows.decode")
_WAIT_S: Final = 15.0
_FIX: Final = (
    "run `changelane package` and set options.executor_archive to the file that it writes, or "
    "install changelane on the workers (docs/deploy.md)"
)


def is_local(master: str) -> bool:
    """Return whether a master's workers run on the driver's machine, with its Python.

    >>> is_local("local[2]"), is_local("spark://there:7077"), is_local("local-cluster[2,1,1024]")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def archive_settings(path: str | Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark options that ship an archive to the executors, merged with *settings*.

    Raises:
        ConfigError: The archive does not exist, or does not fit this driver.
    """
    archive.check(path)
    archive_path = str(Path(path).resolve())
    if any(character in archive_path for character in ",#% "):
        # the option is a list of URIs, each with a fragment
        raise ConfigError(
            f"Spark cannot ship {archive_path}: the path must not contain comma, #, % or blank"
        )
    archives = settings.get("spark.archives")
    python_path = settings.get(PYTHONPATH)
    archive_url = f"{archive_path}#{FOLDER}"
    return {
        "spark.archives": f"{archives},{archive_url}" if archives else archive_url,
        PYTHONPATH: f"{FOLDER}:{python_path}" if python_path else FOLDER,
    }


def python_of(settings: Mapping[str, str], default: str | None) -> str:
    """Return the interpreter of executors: from settings, else one of the driver's version."""
    return settings.get(PYTHON) or default or f"python{python_version()}"


def check(spark: "SparkSession", notify: Callable[[str], None] = lambda _: None) -> None:
    """Check that the workers of a cluster can run changelane, before anything is read.

    Args:
        spark: The session; local workers need no check.
        notify: Shows a note to the user, if the cluster does not start executors soon.

    Raises:
        ConfigError: Workers have another Python, lack a package, or have another changelane. The
            message names the fix.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context: Any = spark.sparkContext
    if is_local(str(context.master)):
        return
    waiting = threading.Timer(
        _WAIT_S, notify, ("waiting for the cluster to start executors (it may have none free)",)
    )
    waiting.daemon = True
    waiting.start()
    try:
        count = int(context.defaultParallelism)
        versions = set(context.parallelize(range(count), count).map(_worker_fingerprint).collect())
    except (Py4JError, PySparkException) as error:
        raise ConfigError(_worker_error(str(error)) or f"the workers: {reason_of(error)}") from None
    finally:
        waiting.cancel()
    if versions - {fingerprint()}:
        raise ConfigError(f"the workers have another changelane than the driver: {_FIX}")


def _worker_fingerprint(_number: int) -> str:
    """Import on a worker the modules of its tasks; return the fingerprint of its changelane."""
    for name in _REQUIRED_MODULES:
        importlib.import_module(name)
    return fingerprint()


def _worker_error(text: str) -> str | None:
    """Return why a worker could not start, from Spark's message, which quotes no row."""
    own_version = python_version()
    if match := re.search(r"different version: ([0-9.]+) than", text):
        return (
            f"the workers run Python {match[1]} and the driver {own_version}; both must be the "
            f"same: set {PYTHON} to a python{own_version} on the workers, or start the driver with "
            f"{match[1]}"
        )
    if match := re.search(r'Cannot run program "([^"\n]+)"', text):
        return f"the workers have no {match[1]}: set {PYTHON} to a Python {own_version} on them"
    if match := re.search(r"No module named '([\w.]+)'", text):
        name = match[1]
        if "._" in name or name.startswith("_"):
            return (
                f"the workers cannot load {name}, which was built for another platform or another "
                "Python: see `changelane package --platform` and docs/deploy.md"
            )
        return f"the Python of the workers has no {name}: {_FIX}"
    if match := re.search(r"\bImportError: ([^\n]+)", text):
        return f"the workers cannot load what changelane needs ({match[1]}): {_FIX}"
    return None


def unshared_paths(spark: "SparkSession", paths: Iterable[str]) -> list[str]:
    """Return the paths on local file systems, which the machines of a cluster may not share."""
    jvm: Any = spark._jvm
    if is_local(str(spark.sparkContext.master)):
        return []
    configuration = spark._jsc.sc().hadoopConfiguration()
    local_paths = []
    for path in dict.fromkeys(paths):
        hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
        if hadoop_path.getFileSystem(configuration).getScheme() == "file":
            local_paths.append(path)
    return local_paths
