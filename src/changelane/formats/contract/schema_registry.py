# SPDX-License-Identifier: Apache-2.0
"""The interface of schema registries, and their one cache per process.

Formats are pure, and a registry is not. So a format knows this interface, and the module of an
implementation is imported by its name when a schema is first needed.
"""

import importlib
import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec

from changelane.errors import ConfigError

_MODULES: Final = {
    "http": "changelane.schema_registries.http",
    "https": "changelane.schema_registries.http",
    "file": "changelane.schema_registries.folder",
}
"""The scheme of a location -> the module with the function ``open_location``."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_AUTHORITY: Final = re.compile(
    r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@|[^/?#]*:[^/?#]*@)", re.ASCII
)
_HOST: Final = re.compile(r"\s.*|[\w.-]+:\d+(?:/.*)?", re.ASCII | re.DOTALL)
"""A host with a port, or an address after a blank: no path of a folder."""
_URL: Final = re.compile(r"[!\"$->@-~]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
BEARER: Final = "bearer "
"""The beginning of a token among credentials, in any case."""
_MAX_REGISTRIES: Final = 64


class IdKind(StrEnum):
    """The kinds of ids with which messages name their schema."""

    ID = "id"
    """Four bytes: the id of Confluent's registry, or the content id of Apicurio."""
    GLOBAL_ID = "global_id"
    """Eight bytes: the global id of Apicurio."""
    CONTENT_ID = "content_id"
    """The content id of Apicurio, in a header."""
    GUID = "guid"
    """16 bytes: the GUID of Confluent's registry."""
    GLUE = "glue"
    """16 bytes: the id of a schema version of AWS Glue."""


class SchemaId(msgspec.Struct, frozen=True):
    """The id of a schema in a message: a decimal number, or a UUID."""

    kind: IdKind
    text: str


class RegisteredSchema(msgspec.Struct, frozen=True):
    """A schema of a registry.

    Attributes:
        text: The schema.
        type: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        references: The schemas that it refers to, each after those that it refers to itself.
    """

    text: str
    type: str = "AVRO"
    references: tuple[str, ...] = ()


class SchemaRegistry(Protocol):
    """A registry. Implementations are thread-safe."""

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return a schema.

        Raises:
            DecodeError: The registry has no schema with that id (``unknown_schema``).
            UnreachableError: The registry does not answer, or rejects the request.
        """
        ...

    def register(self, subject: str, text: str) -> int:
        """Return the id of an Avro schema, which is registered if the subject does not have it.

        Raises:
            UnreachableError: The registry does not answer, or rejects the schema.
        """
        ...

    def registered_id(self, subject: str, text: str) -> int | None:
        """Return the id of an Avro schema; ``None`` if the subject does not have it.

        Raises:
            UnreachableError: The registry does not answer, or rejects the request.
        """
        ...


class Location(msgspec.Struct, frozen=True):
    """The address of a registry and the credentials for it.

    Attributes:
        address: An HTTP address, or a folder.
        auth: ``user:password``, or ``Bearer`` and a token; empty = none.
    """

    address: str
    auth: str = ""

    def __repr__(self) -> str:
        return f"Location({self.address!r})"


def check_location(location: Location) -> None:
    """Reject a location of no registry.

    Raises:
        ConfigError: The address is empty, no URL, has an unknown scheme, or contains credentials,
            or no HTTP header can have the credentials; the error does not quote them.
    """
    if not location.address:
        raise ConfigError("registry: set the address of the schema registry, or a folder")
    if _AUTHORITY.match(location.address):
        raise ConfigError("registry: the address contains credentials; set registry_auth instead")
    if _scheme_of(location) not in _MODULES or _HOST.fullmatch(location.address):
        raise ConfigError("registry: the address must start with http:// or https://, or be a path")
    if _scheme_of(location) != "file" and not _is_url(location.address):
        raise ConfigError(
            "registry: the address is not a URL of ASCII characters without a query, such as "
            "http://registry:8081"
        )
    auth = location.auth
    if _CONTROL.search(auth) or (auth.lower().startswith(BEARER) and not auth.isascii()):
        raise ConfigError(
            "registry_auth: the value has a line end or another control character, or the token "
            "has a character that is not ASCII"
        )


def _is_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return _URL.fullmatch(address) is not None and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _scheme_of(location: Location) -> str:
    match = _SCHEME.match(location.address)
    return "file" if match is None else match.group(1).lower()


@lru_cache(maxsize=_MAX_REGISTRIES)
def registry_at(location: Location) -> SchemaRegistry:
    """Return the registry at a location; a process opens it once."""
    module = importlib.import_module(_MODULES[_scheme_of(location)])
    registry: SchemaRegistry = module.open_location(location)
    return registry
