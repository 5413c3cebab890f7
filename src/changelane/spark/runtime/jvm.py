# SPDX-License-Identifier: Apache-2.0
"""The JVM of a local run: the check for Java, its log file, and its environment.

Spark writes stack traces of 40 to 150 lines to stderr. A command redirects them to a log file and
prints one sentence with the name of the file.
"""

import contextlib
import datetime as dt
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyspark

from changelane.errors import ConfigError

LOG_DIR_VARIABLE: Final = "CHANGELANE_LOG_DIR"
CLASS_PATH_VARIABLE: Final = "SPARK_DIST_CLASSPATH"
"""Spark's launcher appends it to the class path of the driver."""
_MAX_LOGS: Final = 20
"""The maximum number of logs; a new one deletes the oldest ones of ended processes."""
_LOG: Final = re.compile(r"changelane-[0-9.-]+-([0-9]+)\.log")


def is_own_spark() -> bool:
    """Whether the user has a Spark, or a configuration of PySpark's, that may set any option."""
    return (
        "SPARK_HOME" in os.environ
        or "SPARK_CONF_DIR" in os.environ
        or Path(pyspark.__file__).with_name("conf").exists()
    )


def check_java() -> None:
    """Check that there is a Java: Spark's launcher would fail with several lines.

    Raises:
        ConfigError: There is none; the message names the fix.
    """
    if is_own_spark():
        return  # spark-env.sh may set one
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java) is None:
        where = f" in JAVA_HOME ({home})" if home else " on the PATH"
        msg = (
            f"Spark needs Java 17 or newer, and there is none{where}: install it (Debian: "
            "apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
        )
        raise ConfigError(msg)


def create_log() -> Path:
    """Create an empty log file that only this user can read, and delete the oldest ones.

    The folder is ``CHANGELANE_LOG_DIR``, or the user's own in the folder for temporary files.
    """
    folder = _log_folder()
    now = dt.datetime.now(dt.UTC)
    path = folder / f"changelane-{now:%Y%m%d-%H%M%S.%f}-{os.getpid()}.log"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    logs = sorted(path for path in folder.iterdir() if _LOG.fullmatch(path.name))
    for old in logs[:-_MAX_LOGS]:
        with contextlib.suppress(OSError):
            if old != path and not _is_in_use(old):
                old.unlink()
    return path


def _is_in_use(log: Path) -> bool:
    """Return whether the process of a log still runs."""
    match = _LOG.fullmatch(log.name)
    try:
        os.kill(int(match[1]) if match else 0, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process of another user
        return True
    return True


def _log_folder() -> Path:
    if log_dir := os.environ.get(LOG_DIR_VARIABLE):
        folder = Path(log_dir)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"changelane-logs-{user}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="changelane-logs-"))
    # all users can write to the parent: do not use another user's folder, or a link
    if folder.is_symlink() or status.st_uid != user or status.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="changelane-logs-"))
    return folder


@contextlib.contextmanager
def stderr_into(path: Path | None) -> Iterator[None]:
    """Redirect the stderr of processes that start inside to a file; ``None`` = do not."""
    try:
        terminal = None if path is None or sys.stderr is None else os.dup(2)
    except OSError:  # stderr is closed
        terminal = None
    if path is None or terminal is None:
        yield
        return
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 2)
    os.close(file)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def print_to_stderr(spark_jvm: Any) -> None:
    """Let libraries in a JVM print to its stderr: stdout has the output of a command.

    Hudi measures objects with JOL, which prints warnings.
    """
    system = spark_jvm.java.lang.System
    system.setOut(system.err)


@contextlib.contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for processes that start inside."""
    variable = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if variable is None:
            del os.environ[name]
        else:
            os.environ[name] = variable


@contextlib.contextmanager
def in_utf8() -> Iterator[None]:
    """Set a UTF-8 locale for a JVM that starts inside, as Python uses UTF-8 in every locale.

    In the locale ``C`` the JVM finds only files with ASCII names.
    """
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next(filter(None, map(os.environ.get, names)), "")
    if "utf8" in locale.lower().replace("-", ""):
        yield
        return
    with _environment_variable("LC_ALL", "C.UTF-8"):
        yield


@contextlib.contextmanager
def class_path(jars: Sequence[Path]) -> Iterator[None]:
    """Append jars to the class path of a JVM that starts inside, after those of Spark."""
    if not jars:
        yield
        return
    with _environment_variable(CLASS_PATH_VARIABLE, os.pathsep.join(map(str, jars))):
        yield


@contextlib.contextmanager
def on_loopback(*, is_local: bool) -> Iterator[dict[str, str]]:
    """Yield the settings that make a local run listen on the loopback address only.

    The address of the UI is an environment variable of the JVM, which is set until the end.
    """
    if not is_local:
        yield {}
        return
    address = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    with _environment_variable("SPARK_LOCAL_IP", address):
        yield {"spark.driver.host": address, "spark.driver.bindAddress": address}
