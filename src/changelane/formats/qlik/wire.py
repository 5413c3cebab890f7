# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Qlik Replicate's messages, with the producer's own names and order."""

import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode

MAGIC: Final = "atMSG"

Row = dict[str, Any]
"""Columns and JSON values."""


class Headers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The object ``headers`` of a data message; rows of a full load have an operation only."""

    operation: str
    changeSequence: str | None = None  # noqa: N815 - the producer's name
    timestamp: str | None = None
    streamPosition: str | None = None  # noqa: N815 - the producer's name
    transactionId: str | None = None  # noqa: N815 - the producer's name
    changeMask: str | None = None  # noqa: N815 - the producer's name
    columnMask: str | None = None  # noqa: N815 - the producer's name
    externalSchemaId: str | int | None = None  # noqa: N815 - the producer's name
    transactionEventCounter: int | None = None  # noqa: N815 - the producer's name
    transactionLastEvent: bool | None = None  # noqa: N815 - the producer's name


class AnyHeaders(Headers, forbid_unknown_fields=False):
    """The object ``headers`` with any keys."""


class DataMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A data message; only some versions name the table."""

    headers: Headers
    data: Row | None = None
    beforeData: Row | None = None  # noqa: N815 - the producer's name
    schema: str | None = None
    table: str | None = None


class AnyDataMessage(DataMessage, forbid_unknown_fields=False):
    """A data message with any keys."""

    headers: AnyHeaders


class EnvelopeFields(msgspec.Struct):
    """The keys of the envelope besides its kind and the message; all may be null."""

    headers: dict[str, str] | None = None
    messageSchemaId: str | None = None  # noqa: N815 - the producer's name
    messageSchema: str | None = None  # noqa: N815 - the producer's name


class DataEnvelope(EnvelopeFields, forbid_unknown_fields=True, kw_only=True):
    """The envelope of a data message."""

    magic: Literal["atMSG"]
    type: Literal["DT"]
    message: DataMessage


class ColumnStructure(msgspec.Struct):
    """A column in a metadata message."""

    ordinal: int
    type: str
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    primaryKeyPosition: int = 0  # noqa: N815 - the producer's name


class TableStructure(msgspec.Struct):
    """The object ``tableStructure``."""

    tableColumns: dict[str, ColumnStructure]  # noqa: N815 - the producer's name


class Lineage(msgspec.Struct):
    """The object ``lineage``."""

    schema: str | None = None
    table: str | None = None


class MetadataMessage(msgspec.Struct):
    """A metadata message: the structure of a table."""

    lineage: Lineage
    tableStructure: TableStructure  # noqa: N815 - the producer's name


class Loaded(NamedTuple):
    """A message that was read.

    Attributes:
        message: The data or metadata message.
        envelope: The keys of the envelope besides the message, if they are not null.
        fields: The undocumented keys of a data message, or all keys of a metadata message.
        header_fields: The undocumented keys in the headers of a data message.
        path: The JSON path of the message.
    """

    message: DataMessage | MetadataMessage
    envelope: Mapping[str, Any]
    fields: Row
    header_fields: Row
    path: str = "$"


_NOTHING: Final[Row] = {}
_IN_ENVELOPE: Final = "$.message"
_ENVELOPE_FIELDS: Final = EnvelopeFields.__struct_fields__
_ENVELOPE: Final = frozenset({"magic", "type", "message", *_ENVELOPE_FIELDS})
_HEADERS: Final = frozenset(Headers.__struct_fields__)
_FIELDS: Final = frozenset(DataMessage.__struct_fields__)


def decoder(kind: Any) -> Callable[[Any], Any]:
    """Return the decoder of a wire class, which raises msgspec's errors."""
    return msgspec.json.Decoder(kind, float_hook=decimal.Decimal).decode


_envelope: Final = decoder(DataEnvelope)
_bare: Final = decoder(DataMessage)
_parts: Final = decoder(dict[str, msgspec.Raw])
_object: Final = decoder(Row)
_text: Final = decoder(str)
_any_json: Final = decoder(Any)
_any_envelope: Final = decoder(EnvelopeFields)
_any_data: Final = decoder(AnyDataMessage)
_metadata: Final = decoder(MetadataMessage)


def has_envelope(value: bytes) -> bool:
    """Return whether a usual message has the envelope."""
    return b'"magic"' in value[:100]


def load(value: bytes) -> Loaded:
    """Return the message in the bytes of a Kafka message, with or without the envelope.

    Raises:
        DecodeError: The bytes are not a message of Qlik Replicate.
    """
    try:
        if not has_envelope(value):
            return Loaded(_bare(value), _NOTHING, _NOTHING, _NOTHING)
        envelope = _envelope(value)
    except (msgspec.MsgspecError, ValueError, RecursionError, ArithmeticError):
        return _load_any(value)
    return Loaded(envelope.message, envelope_fields(envelope), _NOTHING, _NOTHING, _IN_ENVELOPE)


def envelope_fields(envelope: EnvelopeFields) -> Row:
    """Return the keys of an envelope that are not null."""
    return {
        name: field for name in _ENVELOPE_FIELDS if (field := getattr(envelope, name)) is not None
    }


def _load_any(value: bytes) -> Loaded:
    """Return a message of any kind with any keys."""
    parts = _loads(_parts, value, "$")
    if "magic" not in parts:
        return _message(value, "DT" if "headers" in parts else "MD", {}, "$")
    if _loads(_text, parts["magic"], "$.magic") != MAGIC:
        raise DecodeError("not an envelope of Qlik", code=ReasonCode.UNKNOWN_KIND, path="$.magic")
    for name in ("type", "message"):
        if name not in parts:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path=f"$.{name}")
    kind = _loads(_text, parts["type"], "$.type")
    fields = envelope_fields(_loads(_any_envelope, value, "$"))
    for name, part in parts.items():
        if name not in _ENVELOPE:
            fields[name] = _loads(_any_json, part, f"$.{name}")
    return _message(parts["message"], kind, fields, _IN_ENVELOPE)


def _message(value: Any, kind: str, envelope: Row, path: str) -> Loaded:
    match kind:
        case "DT":
            message = _loads(_any_data, value, path)
            fields = _loads(_object, value, path)
            headers = fields["headers"]
            return Loaded(
                message,
                envelope,
                {name: fields[name] for name in fields if name not in _FIELDS},
                {name: headers[name] for name in headers if name not in _HEADERS},
                path,
            )
        case "MD":
            message = _loads(_metadata, value, path)
            return Loaded(message, envelope, _loads(_object, value, path), _NOTHING, path)
        case _:
            raise DecodeError(
                "neither a data message (DT) nor a metadata message (MD)",
                code=ReasonCode.UNKNOWN_KIND,
                path="$.type",
            )


def _loads(decode: Callable[[Any], Any], value: Any, path: str) -> Any:
    """Return the value of a part of a message; an error has the path of the part."""
    try:
        return decode(value)
    except Exception as error:  # noqa: BLE001 - translated, and re-raised when not msgspec's
        translated = json.translate(error)
    if not isinstance(translated, DecodeError) or path == "$":
        raise translated
    path = translated.path.replace("$", path, 1)
    raise DecodeError(translated.reason, code=translated.code, path=path)
