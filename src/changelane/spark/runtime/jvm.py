# SPDX-License-Identifier: Apache-2.0
"""The JVM that a local run starts: whether there is a Java for it, and where its log goes.

Spark writes stack traces of 40 to 150 lines to stderr. A command keeps them in a log file of its
own and prints one sentence that names the file.
"""

import contextlib
import datetime as dt
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from changelane.errors import ConfigError

LOG_DIR_VARIABLE: Final = "CHANGELANE_LOG_DIR"
_MAX_LOGS: Final = 20
"""The newest logs that are kept; older ones of ended processes are deleted with a new one."""
_LOG: Final = re.compile(r"changelane-[0-9.-]+-([0-9]+)\.log")


def check_java() -> None:
    """Refuse to start where there is no Java: Spark's launcher would fail in several lines.

    Raises:
        ConfigError: It names the fix.
    """
    if "SPARK_HOME" in os.environ or "SPARK_CONF_DIR" in os.environ:
        return  # its spark-env.sh may know one
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    if shutil.which(java) is None:
        where = f" in JAVA_HOME ({home})" if home else " on the PATH"
        msg = (
            f"Spark needs Java 17 or newer, and there is none{where}: install it (Debian: "
            "apt-get install openjdk-17-jre-headless), or point JAVA_HOME to it"
        )
        raise ConfigError(msg)


def create_log() -> Path:
    """Create an empty log file that only this user can read, and delete the oldest ones.

    The folder is ``CHANGELANE_LOG_DIR``, or one of this user below the folder for temporary files.
    """
    folder = _log_folder()
    now = dt.datetime.now(dt.UTC)
    path = folder / f"changelane-{now:%Y%m%d-%H%M%S.%f}-{os.getpid()}.log"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    logs = sorted(path for path in folder.iterdir() if _LOG.fullmatch(path.name))
    for old in logs[:-_MAX_LOGS]:
        with contextlib.suppress(OSError):
            if old != path and not _is_written(old):
                old.unlink()
    return path


def _is_written(log: Path) -> bool:
    """Say whether the process whose log it is still runs."""
    match = _LOG.fullmatch(log.name)
    try:
        os.kill(int(match[1]) if match else 0, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
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
    # everybody may write there: a folder of somebody else, or a link, is not ours
    if folder.is_symlink() or status.st_uid != user or status.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="changelane-logs-"))
    return folder


@contextlib.contextmanager
def stderr_into(path: Path | None) -> Iterator[None]:
    """Let processes that start inside write their stderr into a file; ``None`` = as ever."""
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


@contextlib.contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment for processes that start inside."""
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
    """Let a JVM that starts inside encode names of files in UTF-8, as Python does in every locale.

    In the locale ``C`` it finds no file whose name is not ASCII.
    """
    names = ("LC_ALL", "LC_CTYPE", "LANG")
    locale = next(filter(None, map(os.environ.get, names)), "")
    if "utf8" in locale.lower().replace("-", ""):
        yield
        return
    with _environment_variable("LC_ALL", "C.UTF-8"):
        yield


@contextlib.contextmanager
def on_loopback(*, is_local: bool) -> Iterator[dict[str, str]]:
    """Yield the settings with which a local run listens at the loopback address only.

    The UI's address comes from the environment of the JVM alone, which is set meanwhile.
    """
    if not is_local:
        yield {}
        return
    address = os.environ.get("SPARK_LOCAL_IP") or "127.0.0.1"
    with _environment_variable("SPARK_LOCAL_IP", address):
        yield {"spark.driver.host": address, "spark.driver.bindAddress": address}
