# SPDX-License-Identifier: Apache-2.0
"""A format whose messages are in a serde of a schema registry.

Each message becomes the JSON message that Connect's JSON converter would have written, with the
same schema block. So one decoder reads both, and the values of both are equal.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.event import ChangeEvent
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Format, Report
from changelane.formats.contract.options import changed_options
from changelane.formats.contract.schema_registry import (
    Location,
    SchemaId,
    check_location,
    registry_at,
)
from changelane.formats.debezium_envelope.message_key import NEW_KEY, OLD_KEY
from changelane.formats.debezium_envelope.registry.avro_schemas import (
    CompiledSchema,
    compile_schema,
)
from changelane.formats.debezium_envelope.registry.framing import (
    HEADER_NAMES,
    Headers,
    Part,
    framed,
    may_be_framed,
)
from changelane.formats.debezium_envelope.registry.options import Serde, SerdeOptions
from changelane.message import Message
from changelane.reason_codes import ReasonCode

Options = TypeVar("Options", bound=SerdeOptions)

_MAX_SCHEMAS: Final = 10_000
_KEY_HEADERS: Final = frozenset({NEW_KEY, OLD_KEY})
_PROTOBUF: Final = "Protobuf is not read: let the connector write Avro or JSON"
_JSON: Final = "JSON Schema: set serde to json-schema-registry"


def with_serde(make: Callable[[Options], Format], options: Options, inner: Format) -> Format:
    """Return a format with the serde of its options.

    Args:
        make: The function that makes the format of its options, for pickle.
        options: The options.
        inner: The format of JSON messages.

    Raises:
        ConfigError: The options of the serde contradict each other.
    """
    if options.serde is Serde.JSON:
        names = [name for name in changed_options(options) if name in _REGISTRY_OPTIONS]
        if names:
            msg = f"{names[0]}: set serde to avro-registry, or remove it"
            raise ConfigError(msg)
        return inner
    if options.serde is Serde.AVRO_REGISTRY:
        check_location(options.location)
    return RegistryFormat(make, options, inner)


_REGISTRY_OPTIONS: Final = frozenset(SerdeOptions.__struct_fields__) - {"serde"}


class _RegisteredSchemas:
    """The compiled schemas of one registry."""

    def __init__(self, location: Location, *, restores_names: bool) -> None:
        self._location = location
        self._restores_names = restores_names
        self._schemas: BoundedCache[SchemaId, CompiledSchema | DecodeError]
        self._schemas = BoundedCache(_MAX_SCHEMAS)

    def of(self, schema_id: SchemaId) -> CompiledSchema:
        """Return a schema, which is requested and compiled once.

        Raises:
            DecodeError: The registry lacks it, or it cannot be compiled.
            UnreachableError: The registry does not answer.
        """
        schema = self._schemas.get(schema_id)
        if schema is None:
            schema = self._schemas.add(schema_id, self._compiled(schema_id))
        if isinstance(schema, DecodeError):
            raise schema.at("")
        return schema

    def _compiled(self, schema_id: SchemaId) -> CompiledSchema | DecodeError:
        registered = registry_at(self._location).schema(schema_id)
        if registered.type != "AVRO":
            advice = _PROTOBUF if registered.type == "PROTOBUF" else _JSON
            reason = f"schema {schema_id.text} of the registry is not Avro. {advice}"
            return DecodeError(reason, code=ReasonCode.WRONG_SCHEMA)
        try:
            return compile_schema(registered, restores_names=self._restores_names)
        except DecodeError as error:
            return error


@lru_cache(maxsize=64)
def _schemas_of(location: Location, *, restores_names: bool) -> _RegisteredSchemas:
    """Return the schemas of a registry; all codecs of a process share them."""
    return _RegisteredSchemas(location, restores_names=restores_names)


class RegistryFormat:
    """A format whose messages are framed with the id of their schema.

    Attributes:
        carries: What the format can express.
    """

    def __init__(self, make: Callable[[Any], Format], options: SerdeOptions, inner: Format) -> None:
        self._make = make
        self._options = options
        self._inner = inner
        self._is_avro = options.serde is Serde.AVRO_REGISTRY
        self._id_width = options.id_width
        restores_names = options.avro_names == "unicode"
        self._schemas = _schemas_of(options.location, restores_names=restores_names)
        self.carries = inner.carries

    def __reduce__(self) -> tuple[object, ...]:
        return self._make, (self._options,)

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message.

        Raises:
            DecodeError: The message is not of this format, or the registry lacks its schema.
            UnreachableError: The registry does not answer.
        """
        return self._inner.decode(self._json_message(message))

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:  # noqa: ARG002
        """Reject an event: the serdes of a registry are not written."""
        raise EncodeError(f"messages are not written with serde {self._options.serde}")

    def detects(self, message: Message) -> bool:
        """Return whether a message is of this format."""
        try:
            return bool(message.value) and self._inner.detects(self._json_message(message))
        except DecodeError:
            return False

    def _json_message(self, message: Message) -> Message:
        """Return a message as the JSON converter would have written it."""
        value, key, headers = message.value, message.key, message.headers
        if value:
            value = self._json(value, headers, "value")
        if key and may_be_framed(key, headers, "key"):
            try:
                key = self._json(key, headers, "key")
            except DecodeError as error:
                reason = f"{error.reason} (in the message key)"
                raise DecodeError(reason, code=error.code, path=error.path) from None
        if headers:
            headers = tuple(
                (name, self._header(name, content))
                for name, content in headers
                if name not in HEADER_NAMES
            )
        return msgspec.structs.replace(message, value=value, key=key, headers=headers)

    def _header(self, name: str, content: bytes | None) -> bytes | None:
        """Return a header; Debezium's headers of key changes may be framed, too."""
        if name in _KEY_HEADERS and content and may_be_framed(content, (), "key"):
            return self._json(content, (), "key")
        return content

    def _json(self, data: bytes, headers: Headers, part: Part) -> bytes:
        schema_id, datum = framed(data, headers, part, self._id_width)
        return self._schemas.of(schema_id).message(datum) if self._is_avro else datum
