# SPDX-License-Identifier: Apache-2.0
"""The storage of a capture log: what it must be able to do, and a folder of this machine."""

import errno
import os
from pathlib import Path
from typing import Protocol

from changelane.capture.object_store import SCHEMES, ObjectStoreFolder
from changelane.errors import ConfigError


class Folder(Protocol):
    """The storage of a capture log; names contain ``/``."""

    @property
    def label(self) -> str:
        """The address, for errors."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, without the folder; in no order."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: It does not exist.
        """
        ...

    def create(self, name: str, content: bytes) -> None:
        """Create a durable file.

        Raises:
            FileExistsError: It exists already.
        """
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Create or replace a durable file."""
        ...

    def put(self, source: Path, name: str) -> None:
        """Move a closed local file here, durably."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""
        ...


class LocalFolder:
    """A folder of a file system that is mounted on this machine.

    Args:
        path: The folder; the first write creates it.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    @property
    def label(self) -> str:
        return str(self._path)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self._path / folder)  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def create(self, name: str, content: bytes) -> None:
        part = self._write_part(name, content)
        try:
            os.link(part, self._path / name)  # fails if the name exists, unlike rename
        finally:
            part.unlink()
        _sync_folder(part.parent)

    def replace(self, name: str, content: bytes) -> None:
        part = self._write_part(name, content)
        part.replace(self._path / name)
        _sync_folder(part.parent)

    def _write_part(self, name: str, content: bytes) -> Path:
        target = self._path / name
        _make_folder(target.parent)
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:  # a full disk, which a part would fill further
            part.unlink(missing_ok=True)
            raise
        return part

    def put(self, source: Path, name: str) -> None:
        target = self._path / name
        _make_folder(target.parent)
        try:
            with source.open("rb") as stream:
                os.fsync(stream.fileno())
            source.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.replace(name, source.read_bytes())  # the spool is on another file system
            source.unlink()
        _sync_folder(target.parent)

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    """Create a folder, and make its name durable."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Make the names of new files durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(address: str) -> Folder:
    """Return the storage of an address.

    Raises:
        ConfigError: The address has a scheme that no storage here supports, or credentials.
        MissingExtraError: The library for object stores is not installed.
    """
    scheme, separator, rest = address.partition("://")
    if not separator:
        return LocalFolder(address)
    if scheme == "file":
        return LocalFolder(rest)
    if scheme in SCHEMES:
        return ObjectStoreFolder(address)
    known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
    msg = f"a capture log cannot be at {scheme}:// addresses: use a folder, or one of {known}"
    raise ConfigError(msg)
