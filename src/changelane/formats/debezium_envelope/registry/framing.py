# SPDX-License-Identifier: Apache-2.0
"""The framing of schema registries: the id of the schema before a datum, or in a header.

=====================  ==========================================================================
Confluent v0           ``0x00``, the id in 4 bytes, the datum
Confluent v1           ``0x01``, a GUID of 16 bytes, the datum
Confluent, header      ``__value_schema_id`` (``__key_schema_id``) with one of these two prefixes
Apicurio 3             ``0x00``, the content id in 4 bytes, the datum
Apicurio 2             ``0x00``, the global id in 8 bytes, the datum
Apicurio, header       ``apicurio.value.globalId`` or ``contentId`` (``apicurio.key...``), 8 bytes
AWS Glue               ``0x03``, ``0x00`` or ``0x05`` (zlib), a UUID of 16 bytes, the datum
=====================  ==========================================================================

Sources: confluentinc/schema-registry, ``schema-serializer/.../schema/id``;
Apicurio/apicurio-registry, ``serdes/generic/serde-common`` (``Default4ByteIdHandler``,
``Legacy8ByteIdHandler``, ``OptimisticFallbackIdHandler``); awslabs/aws-glue-schema-registry,
``AWSSchemaRegistryConstants``. The framing of Glue is not proven by a message.
"""

import uuid
import zlib
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from changelane.errors import DecodeError
from changelane.formats.contract.schema_registry import IdKind, SchemaId
from changelane.reason_codes import ReasonCode

Part = Literal["key", "value"]
Headers = tuple[tuple[str, bytes | None], ...]

ID: Final = b"\x00"
"""The first byte of a message with an id of 4 or 8 bytes."""
_GUID, _GLUE = b"\x01", b"\x03"
_PLAIN, _ZLIB = 0x00, 0x05
_UUID_BYTES: Final = 16
_GLUE_START: Final = 2 + _UUID_BYTES
_MAX_DATUM_BYTES: Final = 256 << 20

_CONFLUENT: Final[Mapping[Part, str]] = {"key": "__key_schema_id", "value": "__value_schema_id"}
_APICURIO: Final[Mapping[Part, Mapping[str, IdKind]]] = {
    "key": {
        "apicurio.key.globalId": IdKind.GLOBAL_ID,
        "apicurio.key.contentId": IdKind.CONTENT_ID,
    },
    "value": {
        "apicurio.value.globalId": IdKind.GLOBAL_ID,
        "apicurio.value.contentId": IdKind.CONTENT_ID,
    },
}
_UNREADABLE: Final[Mapping[Part, frozenset[str]]] = {
    "key": frozenset({"apicurio.key.contentHash", "apicurio.key.artifactId"}),
    "value": frozenset({"apicurio.value.contentHash", "apicurio.value.artifactId"}),
}
"""Headers that name a schema without its id."""
HEADER_NAMES: Final = frozenset(
    name
    for names in (_CONFLUENT.values(), *_APICURIO.values(), *_UNREADABLE.values())
    for name in names
)
"""The headers that name a schema."""


class Framed(NamedTuple):
    """A datum with the id of its schema."""

    schema_id: SchemaId
    datum: bytes


def framed(data: bytes, headers: Headers, part: Part, id_width: str) -> Framed:
    """Return the datum of a key or a value, and the id of its schema.

    Raises:
        DecodeError: There is no framing, or it is cut.
    """
    in_header = _in_header(headers, part) if headers else None
    if in_header is not None:
        return Framed(in_header, data)
    first = data[:1]
    if first == ID:
        is_wide = id_width == "8" or (id_width == "auto" and data[1:5] == bytes(4))
        kind, end = (IdKind.GLOBAL_ID, 9) if is_wide else (IdKind.ID, 5)
        return Framed(_number(kind, _cut(data, 1, end)), data[end:])
    if first == _GUID:
        end = 1 + _UUID_BYTES
        return Framed(_uuid(IdKind.GUID, _cut(data, 1, end)), data[end:])
    if first == _GLUE:
        schema_id = _uuid(IdKind.GLUE, _cut(data, 2, _GLUE_START))
        return Framed(schema_id, _uncompressed(data[1], data[_GLUE_START:]))
    reason = "the framing of a schema registry is missing: no id of a schema"
    if data.lstrip()[:1] == b"{":
        reason += " (JSON without framing is read with the serde json)"
    raise DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)


def may_be_framed(data: bytes, headers: Headers, part: Part) -> bool:
    """Return whether a key or a value seems to have the id of a schema: a fast check."""
    if headers and any(name in HEADER_NAMES for name, _ in headers):
        names = {_CONFLUENT[part], *_APICURIO[part], *_UNREADABLE[part]}
        if any(name in names for name, _ in headers):
            return True
    return len(data) > 4 and data[:1] in {ID, _GUID, _GLUE}


def _in_header(headers: Headers, part: Part) -> SchemaId | None:
    for name, content in headers:
        if content is None:
            continue
        if name == _CONFLUENT[part]:
            if content[:1] == _GUID and len(content) == 1 + _UUID_BYTES:
                return _uuid(IdKind.GUID, content[1:])
            if content[:1] == ID and len(content) == 5:
                return _number(IdKind.ID, content[1:])
            raise _wrong_header()
        kind = _APICURIO[part].get(name)
        if kind is not None:
            if len(content) != 8:
                raise _wrong_header()
            return _number(kind, content)
    if any(name in _UNREADABLE[part] for name, _ in headers):
        reason = "the headers have no id of the schema: set apicurio.registry.use-id to it"
        raise DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)
    return None


def _wrong_header() -> DecodeError:
    reason = "the header with the id of the schema has an unknown form"
    return DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)


def _cut(data: bytes, start: int, end: int) -> bytes:
    if len(data) < end:
        reason = "the message ends within the id of its schema"
        raise DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE)
    return data[start:end]


def _number(kind: IdKind, data: bytes) -> SchemaId:
    return SchemaId(kind, str(int.from_bytes(data, "big")))


def _uuid(kind: IdKind, data: bytes) -> SchemaId:
    return SchemaId(kind, str(uuid.UUID(bytes=data)))


def _uncompressed(compression: int, data: bytes) -> bytes:
    if compression == _PLAIN:
        return data
    if compression != _ZLIB:
        reason = "an unknown compression of AWS Glue"
        raise DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)
    decompressor = zlib.decompressobj()
    try:
        datum = decompressor.decompress(data, _MAX_DATUM_BYTES)
    except zlib.error:
        raise DecodeError("the data are not zlib's", code=ReasonCode.MALFORMED_AVRO) from None
    if not decompressor.eof:
        reason = "the compressed data are cut, or too long"
        raise DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE)
    return datum
