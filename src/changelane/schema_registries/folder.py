# SPDX-License-Identifier: Apache-2.0
"""Schemas in a folder: ``ids/<id>.avsc``.

The folder serves sites without a network, tests, and messages that are older than their registry.
The id is a decimal number or a UUID. The schema must not refer to others.
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote

from changelane.errors import DecodeError, UnreachableError
from changelane.formats.contract.schema_registry import Location, RegisteredSchema, SchemaId
from changelane.reason_codes import ReasonCode

_TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


class FolderRegistry:
    """The schemas in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return a schema."""
        ids = self._folder / "ids"
        for suffix, kind in _TYPES.items():
            path = ids / f"{schema_id.text}{suffix}"
            try:
                return RegisteredSchema(path.read_text("utf-8"), kind)
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                msg = f"the schema {schema_id.text} cannot be read ({type(error).__name__})"
                raise UnreachableError(msg) from None
        if not ids.is_dir():
            raise UnreachableError(f"the folder of schemas {ids} does not exist")
        reason = f"the folder of schemas has no {schema_id.text}.avsc"
        raise DecodeError(reason, code=ReasonCode.UNKNOWN_SCHEMA)

    def register(self, subject: str, text: str) -> int:
        """Reject the schema: messages of a folder of schemas are read only."""
        del subject, text
        raise UnreachableError(
            "schemas are not registered in a folder: set registry to the address of a registry"
        )

    def registered_id(self, subject: str, text: str) -> int:
        """Reject the schema, as :meth:`register` does."""
        return self.register(subject, text)


def open_location(location: Location) -> FolderRegistry:
    """Return the registry in a folder."""
    address = location.address
    is_url = address.lower().startswith("file://")
    return FolderRegistry(Path(unquote(address[len("file://") :]) if is_url else address))
