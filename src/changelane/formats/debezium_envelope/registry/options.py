# SPDX-License-Identifier: Apache-2.0
"""The options of the serde, which the formats of the family share."""

from enum import StrEnum
from typing import Literal

import msgspec

from changelane.formats.contract.options import changed_options
from changelane.formats.contract.schema_registry import Location


class Serde(StrEnum):
    """The bytes of messages."""

    JSON = "json"
    """JSON without framing, with or without schema blocks."""
    AVRO_REGISTRY = "avro-registry"
    """Avro, framed with the id of its schema in a registry."""
    JSON_SCHEMA_REGISTRY = "json-schema-registry"
    """JSON, framed with the id of its JSON Schema, which is not used."""


class SerdeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the serde.

    Attributes:
        serde: The bytes of messages: ``json``, ``avro-registry``, or ``json-schema-registry``.
        registry: The schema registry: an HTTP address, or a folder with ``ids/<id>.avsc``.
        registry_auth: The credentials for the registry, from the environment: ``user:password``,
            or ``Bearer`` and a token.
        id_width: The bytes of an id after the first byte, which is zero: 4, or 8 (Apicurio 2);
            ``auto`` = 8 if the first four are zero.
        avro_names: The names of columns: ``as_is``, or ``unicode`` = characters that Debezium wrote
            as ``_uXXXX`` (``field.name.adjustment.mode=avro_unicode``) are restored, and written
            in this form.
        register_schemas: Register the schemas of written messages; ``False`` = they must exist.
        subject_name_strategy: The subjects of written schemas: ``<topic>-key`` and
            ``<topic>-value``.
    """

    serde: Serde = Serde.JSON
    registry: str = ""
    registry_auth: str = ""
    id_width: Literal["auto", "4", "8"] = "auto"
    avro_names: Literal["as_is", "unicode"] = "as_is"
    register_schemas: bool = True
    subject_name_strategy: Literal["TopicNameStrategy"] = "TopicNameStrategy"

    @property
    def location(self) -> Location:
        """The location of the registry."""
        return Location(self.registry, self.registry_auth)

    def __repr__(self) -> str:
        names = [name for name in changed_options(self) if name != "registry_auth"]
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({fields})"
