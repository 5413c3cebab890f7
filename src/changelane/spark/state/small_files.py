# SPDX-License-Identifier: Apache-2.0
"""A folder of small files on any file system, with atomic writes."""

from typing import Any, TypeVar

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ChangelaneError
from changelane.spark.lake.interface import file_system
from changelane.spark.runtime.redact import BROKEN_CHECKPOINT

_Content = TypeVar("_Content")


def decode_file(text: str, content_type: type[_Content], name: str) -> _Content:
    """Return the content of a JSON file.

    Args:
        text: The text of the file.
        content_type: The type of its content.
        name: The name of the file, for the error.

    Raises:
        ChangelaneError: The file is cut, or has other content.
    """
    try:
        return msgspec.json.decode(text, type=content_type)
    except msgspec.DecodeError as error:
        raise ChangelaneError(f"{BROKEN_CHECKPOINT} ({name})") from error


class SmallFiles:
    """A folder of small files.

    Args:
        spark: The session.
        path: The folder; the first write creates it.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm
        self._path = path.rstrip("/")
        self._system, _ = file_system(spark, self._path)

    def _path_of(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._path}/{name}" if name else self._path)

    def exists(self, name: str = "") -> bool:
        """Return whether a file, or the folder itself, exists."""
        return bool(self._system.exists(self._path_of(name)))

    def names(self) -> list[str]:
        """Return the names of the files; an empty list if the folder does not exist."""
        if not self.exists():
            return []
        return [
            str(status.getPath().getName()) for status in self._system.listStatus(self._path_of(""))
        ]

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._system.open(self._path_of(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a new file.

        Raises:
            OSError: The file cannot be written.
        """
        part = self._path_of(f".{name}.part")
        stream = self._system.create(part, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        if not self._system.rename(part, self._path_of(name)):
            raise OSError(f"cannot rename {part}")

    def mark(self, name: str) -> None:
        """Write an empty file, which may exist already."""
        self._system.create(self._path_of(name), True).close()

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._system.delete(self._path_of(name), False)

    def delete_all(self) -> None:
        """Delete the folder with all that it contains, if it exists."""
        self._system.delete(self._path_of(""), True)
