# SPDX-License-Identifier: Apache-2.0
"""A format whose messages are in a serde of a schema registry.

Each message becomes the JSON message that Connect's JSON converter would have written, with the
same schema block. So one decoder reads both, and the values of both are equal.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError, UnreachableError
from changelane.event import ChangeEvent
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Format, Framing, Report
from changelane.formats.contract.lane import Lanes
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
from changelane.formats.debezium_envelope.registry.avro_styles import AvroStyle
from changelane.formats.debezium_envelope.registry.avro_writers import (
    NOT_A_PAYLOAD,
    AvroWriter,
    avro_writer,
)
from changelane.formats.debezium_envelope.registry.framing import (
    HEADER_NAMES,
    ID,
    Headers,
    Part,
    framed,
    may_be_framed,
)
from changelane.formats.debezium_envelope.registry.options import Serde, SerdeOptions
from changelane.formats.debezium_envelope.rows.connect_schema import parse, unwrap
from changelane.formats.debezium_envelope.wrapped_lanes import WrappedLanes
from changelane.message import Message
from changelane.reason_codes import ReasonCode

Options = TypeVar("Options", bound=SerdeOptions)

_MAX_SCHEMAS: Final = 10_000
_KEY_HEADERS: Final = frozenset({NEW_KEY, OLD_KEY})
_PROTOBUF: Final = "Protobuf is not read: let the connector write Avro or JSON"
_JSON: Final = "JSON Schema: set serde to json-schema-registry"


def with_serde(
    make: Callable[[Options], Format],
    options: Options,
    inner: Format,
    *,
    style: AvroStyle = AvroStyle.CONNECT,
) -> Format:
    """Return a format with the serde of its options.

    Args:
        make: The function that makes the format of its options, for pickle.
        options: The options.
        inner: The format of JSON messages.
        style: The style of Avro schemas.

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
    return RegistryFormat(make, options, inner, style=style)


_REGISTRY_OPTIONS: Final = frozenset(SerdeOptions.__struct_fields__) - {"serde"}


class _RegisteredSchemas:
    """The compiled schemas of one registry."""

    def __init__(
        self, location: Location, *, restores_names: bool, is_new: bool, style: AvroStyle
    ) -> None:
        self._location = location
        self._style = style
        self._restores_names = restores_names
        self._is_new = is_new
        self._writers: BoundedCache[tuple[str, bytes], tuple[bytes, AvroWriter] | EncodeError]
        self._writers = BoundedCache(_MAX_SCHEMAS)
        self._unregistered: BoundedCache[tuple[str, bytes], AvroWriter]
        self._unregistered = BoundedCache(_MAX_SCHEMAS)
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

    def writer_of(self, subject: str, block: bytes) -> tuple[bytes, AvroWriter]:
        """Return the framing of a schema's messages and their writer; it is registered once.

        Args:
            subject: The subject of the schema.
            block: The schema block of the JSON message.

        Raises:
            EncodeError: The schema has no Avro form.
            UnreachableError: The registry does not answer, or rejects the schema.
        """
        writer = self._writers.get((subject, block))
        if writer is None:
            writer = self._writers.add((subject, block), self._registered_writer(subject, block))
        if isinstance(writer, EncodeError):
            raise EncodeError(*writer.args)
        return writer

    def checked_writer(self, subject: str, block: bytes) -> AvroWriter:
        """Return the writer of a schema's messages; the schema is not registered.

        Raises:
            EncodeError: The schema has no Avro form.
            UnreachableError: The registry does not answer, or the schema must exist and does not.
        """
        writer = self._unregistered.get((subject, block))
        if writer is None:
            writer = self._writer(block)
            if self._is_new:
                registry_at(self._location).registered_id(subject, writer.text)
            else:
                self._registered_id(subject, writer)
            self._unregistered.add((subject, block), writer)
        return writer

    def _writer(self, block: bytes) -> AvroWriter:
        """Return the writer of a schema's messages.

        Raises:
            EncodeError: The schema has no Avro form.
        """
        try:
            return avro_writer(
                parse(block),
                escapes_names=self._restores_names,
                style=self._style,
            )
        except (DecodeError, *NOT_A_PAYLOAD):
            raise EncodeError("the schema block of the message has no Avro form") from None

    def _registered_writer(
        self, subject: str, block: bytes
    ) -> tuple[bytes, AvroWriter] | EncodeError:
        try:
            writer = self._writer(block)
        except EncodeError as error:
            return error
        registry = registry_at(self._location)
        schema_id = (
            registry.register(subject, writer.text)
            if self._is_new
            else self._registered_id(subject, writer)
        )
        return ID + schema_id.to_bytes(4, "big"), writer

    def _registered_id(self, subject: str, writer: AvroWriter) -> int:
        schema_id = registry_at(self._location).registered_id(subject, writer.text)
        if schema_id is None:
            raise UnreachableError(
                f"the schema registry at {self._location.address} has no such schema of the "
                f"subject {subject}: register it, or set register_schemas to true"
            )
        return schema_id

    def _compiled(self, schema_id: SchemaId) -> CompiledSchema | DecodeError:
        registered = registry_at(self._location).schema(schema_id)
        if registered.type != "AVRO":
            advice = _PROTOBUF if registered.type == "PROTOBUF" else _JSON
            reason = f"schema {schema_id.text} of the registry is not Avro. {advice}"
            return DecodeError(reason, code=ReasonCode.WRONG_SCHEMA)
        try:
            return compile_schema(
                registered,
                restores_names=self._restores_names,
                style=self._style,
            )
        except DecodeError as error:
            return error


@lru_cache(maxsize=64)
def _schemas_of(
    location: Location, *, restores_names: bool, is_new: bool, style: AvroStyle
) -> _RegisteredSchemas:
    """Return the schemas of a registry; all codecs of a process share them."""
    return _RegisteredSchemas(
        location,
        restores_names=restores_names,
        is_new=is_new,
        style=style,
    )


class _JsonPart(NamedTuple):
    """The key or the value of a message, as Connect's JSON converter writes it."""

    block: bytes
    payload: bytes


class _JsonParts(NamedTuple):
    """The parts of a message that a registry has schemas of; ``None`` = it has no such part."""

    value: _JsonPart | None
    key: _JsonPart | None


def _parts(message: Message) -> _JsonParts:
    """Return the parts of a message.

    Raises:
        EncodeError: The message has no topic, or no schema blocks.
    """
    if message.topic is None:
        raise EncodeError("the message has no topic, which names the subject of its schema")
    key = message.key
    has_key = key is not None and key.lstrip()[:1] == b"{"  # other keys are not of a converter
    return _JsonParts(
        _json_part(message.value) if message.value else None,
        _json_part(key) if has_key and key else None,
    )


def _json_part(data: bytes) -> _JsonPart:
    block, payload = unwrap(data) or (None, data)
    if block is None:
        reason = "the message has no schema block, from which its Avro schema is made"
        advice = "the event needs the types of its columns, which only changes of rows have"
        raise EncodeError(f"{reason}: {advice}")
    return _JsonPart(block, payload)


class RegistryFormat:
    """A format whose messages are framed with the id of their schema.

    Attributes:
        carries: What the format can express.
        lanes: The lanes of plain row changes, if the format has lanes.
    """

    def __init__(
        self,
        make: Callable[[Any], Format],
        options: SerdeOptions,
        inner: Format,
        *,
        style: AvroStyle,
    ) -> None:
        self._make = make
        self._options = options
        self._inner = inner
        self._is_avro = options.serde is Serde.AVRO_REGISTRY
        self._id_width = options.id_width
        restores_names = options.avro_names == "unicode"
        self._schemas = _schemas_of(
            options.location,
            restores_names=restores_names,
            is_new=options.register_schemas,
            style=style,
        )
        self._last: tuple[bytes, bytes] = (b"", b"")
        self.carries = inner.carries
        lanes: Lanes | None = getattr(inner, "lanes", None)
        self.lanes = (
            None if lanes is None else WrappedLanes(lanes, self._json_message, HEADER_NAMES)
        )

    def __reduce__(self) -> tuple[object, ...]:
        return self._make, (self._options,)

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message.

        Raises:
            DecodeError: The message is not of this format, or the registry lacks its schema.
            UnreachableError: The registry does not answer.
        """
        return self._inner.decode(self._json_message(message))

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as JSON with schema blocks, of which :meth:`frame` makes Avro.

        Raises:
            EncodeError: The event cannot be encoded.
        """
        if not self._is_avro:
            raise EncodeError("messages are not written with the serde json-schema-registry")
        return self._inner.encode(event, report=report)

    @property
    def framing(self) -> Framing:
        """The framing of its messages: the format itself."""
        return self

    def frame(self, message: Message) -> Message:
        """Return a message in Avro with the framing of Confluent v0.

        Raises:
            EncodeError: The message has no topic, no types, or no form in Avro.
            UnreachableError: The registry does not answer, or rejects the schema.
        """
        value, key = message.value, message.key
        if (parts := _parts(message)).value is not None:
            value = self._avro(parts.value, f"{message.topic}-value")
        if parts.key is not None:
            key = self._avro(parts.key, f"{message.topic}-key")
        return msgspec.structs.replace(message, value=value, key=key)

    def check(self, message: Message) -> None:
        """Check whether a message has a form in Avro, and the registry answers; it is not changed.

        Raises:
            EncodeError: As :meth:`frame` does.
            UnreachableError: The registry does not answer, or the schema must exist and does not.
        """
        for name, part in _parts(message)._asdict().items():
            if part is not None:
                writer = self._schemas.checked_writer(f"{message.topic}-{name}", part.block)
                writer.datum(part.payload)

    def _avro(self, part: "_JsonPart", subject: str) -> bytes:
        framing, writer = self._schemas.writer_of(subject, part.block)
        return framing + writer.datum(part.payload)

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
            value = self._json_value(value, headers)
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

    def _json_value(self, value: bytes, headers: Headers) -> bytes:
        """Return a value as JSON; a lane asks before the event path does."""
        if headers and any(name in HEADER_NAMES for name, _ in headers):
            return self._json(value, headers, "value")
        last_value, json_value = self._last
        if value is not last_value:
            json_value = self._json(value, (), "value")
            self._last = value, json_value
        return json_value

    def _header(self, name: str, content: bytes | None) -> bytes | None:
        """Return a header; Debezium's headers of key changes may be framed, too."""
        if name in _KEY_HEADERS and content and may_be_framed(content, (), "key"):
            return self._json(content, (), "key")
        return content

    def _json(self, data: bytes, headers: Headers, part: Part) -> bytes:
        schema_id, datum = framed(data, headers, part, self._id_width)
        return self._schemas.of(schema_id).message(datum) if self._is_avro else datum
