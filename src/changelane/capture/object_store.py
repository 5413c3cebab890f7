# SPDX-License-Identifier: Apache-2.0
"""The storage of a capture log in an object store.

Amazon S3 and what speaks its protocol, Google Cloud Storage, and Azure. A file is created by a
conditional request, so that one of two writers fails; the store must support these requests.
Credentials come from the environment (``AWS_ACCESS_KEY_ID``, ``GOOGLE_APPLICATION_CREDENTIALS``,
``AZURE_STORAGE_ACCOUNT_KEY`` and their like) or from the machine's role, never from the address.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from changelane.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES: Final = frozenset({"s3", "s3a", "gs", "abfs", "abfss", "az"})
"""The schemes of addresses of object stores."""
RETRY_TIMEOUT_S: Final = 180
"""The time for which a failed request is repeated, seconds."""


class ObjectStoreFolder:
    """A folder of an object store.

    Args:
        address: The address, such as ``s3://bucket/capture/shop``.

    Raises:
        ConfigError: The address contains credentials, or is none of an object store.
        MissingExtraError: obstore is not installed.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.password is not None or parts.query:
            # the text of the address is shown in errors
            msg = "the address of a capture log contains credentials: put them into the environment"
            raise ConfigError(msg)
        self._address = address
        _ = self._store

    def __reduce__(self) -> tuple[type["ObjectStoreFolder"], tuple[str]]:
        """Leave the credentials out: each process has its own."""
        return type(self), (self._address,)

    @cached_property
    def _store(self) -> "ObjectStore":
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError:
            raise MissingExtraError("obstore", "capture") from None
        try:
            return from_url(
                self._address, retry_config={"retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S)}
            )
        except (BaseError, ValueError) as error:
            msg = f"{self._address} is no address of an object store: {_reason(error)}"
            raise ConfigError(msg) from None

    @property
    def label(self) -> str:
        return self._address

    def names(self, folder: str) -> list[str]:
        with self._errors(folder):
            listed = self._store.list_with_delimiter(folder)
        return [item["path"].rpartition("/")[2] for item in listed["objects"]]

    def read(self, name: str) -> bytes:
        with self._errors(name):
            return bytes(self._store.get(name).bytes())

    def create(self, name: str, content: bytes) -> None:
        # a repeated request may find the file that the first one created: its answer was lost
        with self._errors(name):
            self._store.put(name, content, mode="create")

    def replace(self, name: str, content: bytes) -> None:
        with self._errors(name):
            self._store.put(name, content)

    def put(self, source: Path, name: str) -> None:
        with source.open("rb") as stream, self._errors(name):
            self._store.put(name, stream)
        source.unlink()

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), self._errors(name):
            self._store.delete(name)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Raise the errors of the store as those of a file system."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        place = f"{self._address.rstrip('/')}/{name}"
        try:
            yield
        except AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, "exists already", place) from error
        except BaseError as error:
            raise OSError(errno.EIO, _reason(error), place) from error


def _reason(error: Exception) -> str:
    """Return the first line of an error; the others repeat it with the program's structures."""
    return str(error).partition("\n")[0]
