# SPDX-License-Identifier: Apache-2.0
"""The files of a source's folder, as they are there now: local ones, and those of Hadoop's systems.

What Spark's own file source leaves out is left out: names that begin with a dot or an underscore.
"""

import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.files_source import FilesSource
from changelane.spark.lake import file_system
from changelane.spark.ledgers.files_read import File

_LEGAL: Final = "/@,;:$&+=!~'()*_-."
"""What a path's URI shows as it is, as ``java.net.URI`` has it; letters of all scripts, too."""
_FOREIGN: Final = re.compile(r"[\x00-\x7f]+")
_STATUS: Final = re.compile(
    r"\w+\{path=(.*); isDirectory=(?:true|false); length=([0-9]+);.*?"
    r"modification_time=(-?[0-9]+);.*",
    re.DOTALL,
)


class Listing(NamedTuple):
    """What a folder holds.

    Attributes:
        files: Its files.
        outside: Symbolic links that lead out of it, and are not followed.
        unlisted: Why folders in it, or names, cannot be read, by their paths.
    """

    files: list[File]
    outside: list[str]
    unlisted: dict[str, str]


class Root(NamedTuple):
    """The folder of a source.

    Attributes:
        path: Where it is, as in :class:`File`.
        is_local: Whether Python reads it, and not Hadoop.
        pattern: The regular expression of the names of its files.
    """

    path: str
    is_local: bool
    pattern: str

    def topic(self, path: str) -> str:
        """Return what the messages of a file have for a topic: where it is in the folder."""
        inside = path.removeprefix(self.path.rstrip("/") + "/")
        return encoded(inside if inside != path else path.rpartition("/")[2])


def encoded(path: str) -> str:
    """Return a path as an address shows it."""
    return _FOREIGN.sub(lambda part: quote(part[0], safe=_LEGAL), path)


def address(path: str) -> str:
    """Return the address of a file, as older checkpoints and logs have it."""
    return f"file://{encoded(path)}" if path.startswith("/") else encoded(path)


def path_of(address: str) -> str:
    """Return the path of a file by its address.

    >>> path_of("file:///in/a%20b.jsonl"), path_of("s3a://in/a%20b.jsonl")
    ('/in/a b.jsonl', 's3a://in/a b.jsonl')
    """
    return _local(unquote(address))


def _local(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)


def is_local(path: str) -> bool:
    """Say whether Python reads a file, and not Hadoop."""
    return path.startswith("/")


def root_of(spark: SparkSession, source: FilesSource) -> Root:
    """Return the folder of a source.

    Raises:
        ConfigError: There is none.
    """
    system, folder = file_system(spark, source.path)
    if not system.exists(folder):
        raise ConfigError(f"there is no folder {source.path}")
    jvm: Any = spark._jvm
    pattern = str(jvm.org.apache.hadoop.fs.GlobPattern(source.glob).compiled().pattern())
    whole = system.makeQualified(folder)
    is_local = str(whole.toUri().getScheme()) == "file"
    return Root(_local(str(whole.toString())), is_local, pattern)


def listing(spark: SparkSession, source: FilesSource, root: Root) -> Listing:
    """Return what a source's folder holds.

    Raises:
        ConfigError: It cannot be read.
    """
    if not root.is_local:
        return _remote(spark, source)
    matches = re.compile(root.pattern, re.DOTALL).fullmatch
    return walk(root.path, lambda name: matches(name) is not None, follow_links=source.follow_links)


# -- local


def walk(root: str, accepts: Callable[[str], bool], *, follow_links: bool = False) -> Listing:
    """Return what a local folder holds, with the folders in it.

    A link to a folder is followed inside the folder, too, but never round in a circle.

    Args:
        root: The folder, or a file.
        accepts: Whether files of a name are read.
        follow_links: Whether links are followed that lead out of the folder.

    Raises:
        ConfigError: The folder cannot be read.
    """
    found = Listing([], [], {})
    real = os.path.realpath(root)
    if not os.path.isdir(root):  # noqa: PTH112 - a million paths are no objects
        _take(found, root, os.path.basename(root), accepts)  # noqa: PTH119
        return found
    folders = [(root.rstrip("/") or "/", real)]
    while folders:
        folder, real_folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                told = list(entries)
        except OSError as error:
            if folder == root:
                raise ConfigError(f"cannot read the folder {root}: {error.strerror}") from None
            found.unlisted[folder] = error.strerror or type(error).__name__
            continue
        for entry in told:
            if is_hidden(entry.name):
                continue
            target = f"{real_folder}/{entry.name}"
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if not follow_links and not is_within(target, real):
                    if entry.is_dir() or accepts(entry.name):
                        found.outside.append(entry.path)
                    continue
                if is_within(real_folder, target):  # it leads to a folder that it is in
                    continue
            if entry.is_dir():
                folders.append((entry.path, target))
            else:
                _take(found, entry.path, entry.name, accepts)
    return found


def _take(found: Listing, path: str, name: str, accepts: Callable[[str], bool]) -> None:
    if not accepts(name):
        return
    try:
        path.encode()
        status = os.stat(path)  # noqa: PTH116
    except UnicodeEncodeError:
        found.unlisted[path.encode(errors="surrogateescape").decode(errors="replace")] = (
            "its name is not UTF-8"
        )
        return
    except OSError:  # it went meanwhile, or is a link to nothing
        return
    if stat.S_ISREG(status.st_mode):
        found.files.append(File(path, status.st_size, status.st_mtime_ns // 1_000_000))


def is_hidden(name: str) -> bool:
    """Say whether Spark leaves a file or a folder out, by its name."""
    if name.startswith(("_metadata", "_common_metadata")):
        return False
    return (
        name.startswith(".")
        or (name.startswith("_") and "=" not in name)
        or name.endswith("._COPYING_")
    )


def is_within(path: str, folder: str) -> bool:
    """Say whether a path, in which no link is left, is a folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# -- others


def _remote(spark: SparkSession, source: FilesSource) -> Listing:
    """Return the files of a folder that Hadoop reads, as Spark's index lists them.

    Neither the JVM's file systems nor object stores that people use have links that lead out.
    """
    reader = (
        spark.read.format("text")
        .options(**source.hadoop)
        .option("pathGlobFilter", source.glob)
        .option("recursiveFileLookup", "true")
        .option("__globPaths__", "false")
    )
    told: Any = reader.load(source.path)
    index = told._jdf.queryExecution().analyzed().relation().location()
    return Listing(list(_statuses(index.allFiles())), [], {})


def _statuses(statuses: Any) -> Iterable[File]:
    """Yield Hadoop's ``FileStatus`` objects; their texts come at once, in one call to the JVM."""
    parting = f"\n{uuid.uuid4()}\n"
    texts = str(statuses.mkString(parting)).split(parting) if statuses.size() else []
    matches = [_STATUS.fullmatch(text) for text in texts]
    for number, match in enumerate(matches):
        if match is not None:
            yield File(_local(match[1]), int(match[2]), int(match[3]))
            continue
        one = statuses.apply(number)  # a file system with words of its own
        path = str(one.getPath().toString())
        yield File(_local(path), int(one.getLen()), int(one.getModificationTime()))
