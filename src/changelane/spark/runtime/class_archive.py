# SPDX-License-Identifier: Apache-2.0
"""An archive of the JVM's classes, which a local run maps into memory at its start.

A run loads some 20,000 classes of Spark; to parse and verify them takes a fifth of the processor
time of a run of 1,000 messages. Class data sharing (`JEP 350 <https://openjdk.org/jeps/350>`_)
stores classes as they are in the memory of a JVM.

An archive fits one Java and one class path, and the JVM checks both. It ignores an archive that
does not fit, but it crashes on an incomplete one: so an archive gets its name, which contains its
size, when it is complete.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from changelane.spark.runtime import jvm_options
from changelane.spark.runtime.jars import ivy_dir
from changelane.spark.runtime.jvm import is_own_spark

JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"

MAX_ARCHIVES: Final = 4
"""The maximum number of archives, 200 MB each; a new one deletes the oldest ones."""
_SHARING: Final = re.compile(
    r"-Xshare:|-XX:(?:SharedArchiveFile|ArchiveClassesAtExit|AOT\w+|[+-]AutoCreateSharedArchive)\b"
)
_NO_WARNINGS: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_WRITABLE_BY_OTHERS: Final = 0o022


def settings(user_settings: Mapping[str, str], jars: Sequence[Path] = ()) -> dict[str, str]:
    """Return the Spark option with which a local JVM uses the archive, merged with the user's.

    It is empty if there is no archive, if the user's options choose one, or if the user's own
    Spark may set the same option.

    Args:
        user_settings: Spark's options of the user.
        jars: The jars on the class path beside those of Spark.
    """
    options = user_settings.get(JAVA_OPTIONS, "")
    if is_own_spark() or _SHARING.search(jvm_options.all_options(options)):
        return {}
    archive = find(jars)
    if archive is None:
        return {}
    return {JAVA_OPTIONS: f'"-XX:SharedArchiveFile={archive}" {_NO_WARNINGS} {options}'.rstrip()}


def creation_settings(part: Path) -> dict[str, str]:
    """Return the Spark option with which a JVM writes the archive when it ends.

    That JVM does not optimize: it runs each class only for a short time.
    """
    options = f"-XX:TieredStopAtLevel=1 {jvm_options.CODE_CACHE}"
    return {JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={part}" {_NO_WARNINGS} {options}'}


def find(jars: Sequence[Path] = ()) -> Path | None:
    """Return the archive for this Java and class path; ``None`` = there is none that is safe."""
    try:
        return next(filter(_is_safe, _archives(_key(jars))), None)
    except OSError:  # no permission, or no Java
        return None


def new_part(jars: Sequence[Path] = ()) -> Path:
    """Return the name of a new archive while it is written, and create its folder."""
    folder = _folder()
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    return folder / f"{_key(jars)}.{os.getpid()}.part"


def install(part: Path) -> Path | None:
    """Give a complete archive its name, and delete the oldest archives.

    Returns:
        The archive; ``None`` if the JVM has not written it completely.
    """
    try:
        with part.open("rb") as file:
            # the JVM writes the header, which begins with a number, after everything else
            is_complete = any(file.read(4))
    except FileNotFoundError:
        return None
    if not is_complete:
        part.unlink()
        return None
    part.chmod(0o444)
    key = part.name.partition(".")[0]
    archive = part.with_name(f"{key}-{part.stat().st_size}.jsa")
    part.replace(archive)
    archives = sorted(_archives("*"), key=lambda path: path.stat().st_mtime_ns)
    for old in archives[:-MAX_ARCHIVES]:
        old.unlink(missing_ok=True)  # a JVM that uses it keeps its pages
    return archive


def _folder() -> Path:
    return (ivy_dir() or Path.home() / ".cache" / "changelane") / "classes"


def _archives(key: str) -> Iterator[Path]:
    return _folder().glob(f"{key}-*.jsa")


def _key(jars: Sequence[Path]) -> str:
    """Return a hash of the Java, of the jars of Spark, and of further jars.

    Raises:
        FileNotFoundError: There is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if command is None:
        raise FileNotFoundError("java")
    java = Path(command).resolve()
    files = [java, java.parents[1] / "lib" / "modules"]
    files += sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    files += jars
    digest = hashlib.sha256()
    for file in filter(Path.exists, files):
        status = file.stat()
        digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _is_safe(archive: Path) -> bool:
    """Return whether an archive is complete, and only its owner (this user or root) can write."""
    status, folder = archive.stat(), archive.parent.stat()
    if archive.stem.rpartition("-")[2] != str(status.st_size):
        return False
    return not any(
        of.st_mode & _WRITABLE_BY_OTHERS or of.st_uid not in {0, os.getuid()}
        for of in (status, folder)
    )
