# SPDX-License-Identifier: Apache-2.0
"""Lists the files of a source's folder, on the local file system or on one of Hadoop's.

As in Spark's file source, names that begin with a dot or an underscore are hidden.
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
from changelane.pipeline.files_source import FilesSource
from changelane.spark.lake.interface import file_system
from changelane.spark.state.file_log import File

_LEGAL: Final = "/@,;:$&+=!~'()*_-."
"""ASCII characters that ``java.net.URI`` does not encode in a path, beside letters and digits."""
_ASCII: Final = re.compile(r"[\x00-\x7f]+")
_STATUS: Final = re.compile(
    r"\w+\{path=(.*); isDirectory=(?:true|false); length=([0-9]+);.*?"
    r"modification_time=(-?[0-9]+);.*",
    re.DOTALL,
)


class Listing(NamedTuple):
    """The content of a folder and of its subfolders.

    Attributes:
        files: The files.
        outside: Symbolic links with a target outside of the folder, which are skipped.
        unlisted: Subfolders and names that cannot be read, with the reason.
    """

    files: list[File]
    outside: list[str]
    unlisted: dict[str, str]


class Root(NamedTuple):
    """The folder of a source.

    Attributes:
        path: Its path, as in :class:`File`.
        is_local: Whether it is on the local file system.
        pattern: The regular expression of the file names.
    """

    path: str
    is_local: bool
    pattern: str

    def topic(self, path: str) -> str:
        """Return the topic of the messages of a file: the path within the folder, encoded."""
        relative_path = path.removeprefix(self.path.rstrip("/") + "/")
        return percent_encode(relative_path if relative_path != path else path.rpartition("/")[2])


def percent_encode(path: str) -> str:
    """Return a path with percent-encoding, as in an address."""
    return _ASCII.sub(lambda part: quote(part[0], safe=_LEGAL), path)


def address(path: str) -> str:
    """Return the address of a file, as in the log of batches."""
    return f"file://{percent_encode(path)}" if path.startswith("/") else percent_encode(path)


def path_of(address: str) -> str:
    """Return the path of a file by its address.

    >>> path_of("file:///in/a%20b.jsonl"), path_of("s3a://in/a%20b.jsonl")
    ('/in/a b.jsonl', 's3a://in/a b.jsonl')
    """
    return _local_path(unquote(address))


def _local_path(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)


def is_local(path: str) -> bool:
    """Return whether a file is on the local file system."""
    return path.startswith("/")


def root_of(spark: SparkSession, source: FilesSource) -> Root:
    """Return the folder of a source.

    Raises:
        ConfigError: The folder does not exist.
    """
    system, folder = file_system(spark, source.path)
    if not system.exists(folder):
        raise ConfigError(f"there is no folder {source.path}")
    jvm: Any = spark._jvm
    pattern = str(jvm.org.apache.hadoop.fs.GlobPattern(source.name_pattern).compiled().pattern())
    qualified = system.makeQualified(folder)
    is_local = str(qualified.toUri().getScheme()) == "file"
    return Root(_local_path(str(qualified.toString())), is_local, pattern)


def list_folder(spark: SparkSession, source: FilesSource, root: Root) -> Listing:
    """Return the content of a source's folder.

    Raises:
        ConfigError: The folder cannot be read.
    """
    if not root.is_local:
        return _list_hadoop_folder(spark, source)
    matches = re.compile(root.pattern, re.DOTALL).fullmatch
    return walk(root.path, lambda name: matches(name) is not None, follow_links=source.follow_links)


# -- local


def walk(root: str, accepts: Callable[[str], bool], *, follow_links: bool = False) -> Listing:
    """Return the content of a local folder and of its subfolders.

    The walk follows links within the folder, but no link to a folder that contains the link.

    Args:
        root: The folder, or a single file.
        accepts: Decides by name which files belong to the source.
        follow_links: Whether the walk follows links to targets outside of the folder.

    Raises:
        ConfigError: The folder cannot be read.
    """
    result = Listing([], [], {})
    real = os.path.realpath(root)
    if not os.path.isdir(root):  # noqa: PTH112 - a million paths are no objects
        _add_file(result, root, os.path.basename(root), accepts)  # noqa: PTH119
        return result
    folders = [(root.rstrip("/") or "/", real)]
    while folders:
        folder, real_folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                children = list(entries)
        except OSError as error:
            if folder == root:
                raise ConfigError(f"cannot read the folder {root}: {error.strerror}") from None
            result.unlisted[folder] = error.strerror or type(error).__name__
            continue
        for entry in children:
            if is_hidden(entry.name):
                continue
            target, is_folder = f"{real_folder}/{entry.name}", _is_folder(entry)
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if not follow_links and not is_within(target, real):
                    if is_folder or accepts(entry.name):
                        result.outside.append(entry.path)
                    continue
                if is_within(real_folder, target):  # a cycle
                    continue
            if is_folder:
                folders.append((entry.path, target))
            else:
                _add_file(result, entry.path, entry.name, accepts)
    return result


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry, or the target of a link, is known to be a folder."""
    try:
        return entry.is_dir()
    except OSError:  # of a link, such as one to itself
        return False


def _add_file(result: Listing, path: str, name: str, accepts: Callable[[str], bool]) -> None:
    if not accepts(name):
        return
    try:
        path.encode()
        status = os.stat(path)  # noqa: PTH116
    except UnicodeEncodeError:
        result.unlisted[path.encode(errors="surrogateescape").decode(errors="replace")] = (
            "its name is not UTF-8"
        )
        return
    except FileNotFoundError:  # deleted since the listing, or a broken link
        return
    except OSError as error:
        result.unlisted[path] = error.strerror or type(error).__name__
        return
    if stat.S_ISREG(status.st_mode):
        result.files.append(File(path, status.st_size, status.st_mtime_ns // 1_000_000))


def is_hidden(name: str) -> bool:
    """Return whether Spark hides a file or a folder of this name."""
    if name.startswith(("_metadata", "_common_metadata")):
        return False
    return (
        name.startswith(".")
        or (name.startswith("_") and "=" not in name)
        or name.endswith("._COPYING_")
    )


def is_within(path: str, folder: str) -> bool:
    """Return whether a path without links is a folder or is within it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# -- file systems of Hadoop


def _list_hadoop_folder(spark: SparkSession, source: FilesSource) -> Listing:
    """Return the files of a folder on a file system of Hadoop, as Spark's file index lists them.

    HDFS and object stores have no symbolic links.
    """
    reader = (
        spark.read.format("text")
        .options(**source.hadoop)
        .option("pathGlobFilter", source.name_pattern)
        .option("recursiveFileLookup", "true")
        .option("__globPaths__", "false")
    )
    frame: Any = reader.load(source.path)
    index = frame._jdf.queryExecution().analyzed().relation().location()
    return Listing(list(_hadoop_files(index.allFiles())), [], {})


def _hadoop_files(statuses: Any) -> Iterable[File]:
    """Yield files from Hadoop's ``FileStatus`` objects, with one call to the JVM."""
    separator = f"\n{uuid.uuid4()}\n"
    texts = str(statuses.mkString(separator)).split(separator) if statuses.size() else []
    matches = [_STATUS.fullmatch(text) for text in texts]
    for number, match in enumerate(matches):
        if match is not None:
            yield File(_local_path(match[1]), int(match[2]), int(match[3]))
            continue
        status = statuses.apply(number)  # a file system with another text form
        path = str(status.getPath().toString())
        yield File(_local_path(path), int(status.getLen()), int(status.getModificationTime()))
