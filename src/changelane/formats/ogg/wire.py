# SPDX-License-Identifier: Apache-2.0
"""The wire class of GoldenGate's messages, and the messages of one transaction in one value."""

import decimal
import json as standard_json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.ogg.options import Model
from changelane.reason_codes import ReasonCode

Row = dict[str, Any]
"""Columns and values: JSON of any kind, numbers with a fraction as ``Decimal``."""


class Metadata(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The fields of a message beside its images."""

    table: str | None = None
    op_type: str | None = None
    op_ts: str | None = None
    current_ts: str | None = None
    pos: str | None = None
    primary_keys: list[str] | None = None
    tokens: Row | None = None


class Operation(Metadata, forbid_unknown_fields=True, gc=False):
    """A message of the operation model; an image may be null, or missing."""

    before: Row | UnsetType | None = UNSET
    after: Row | UnsetType | None = UNSET


METADATA: Final = frozenset(Metadata.__struct_fields__)
FIELDS: Final = frozenset(Operation.__struct_fields__)
SCHEMA: Final = "$schema"
"""A field of messages about schemas, which are JSON Schemas."""
FLATTENED: Final = ("before.", "after.")
"""The starts of the names of columns in flattened images, ``flatten=true``."""

_decode: Final = msgspec.json.Decoder(Operation, float_hook=decimal.Decimal).decode
_raws: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_READ_ERRORS: Final = (ValueError, RecursionError, decimal.DecimalException)
_DECODER: Final = standard_json.JSONDecoder()
_SPACE: Final = re.compile(r"\s*")


def load(value: bytes, model: Model) -> tuple[Operation, Row]:
    """Return the wire class of a message, and its other fields.

    The row model has no images: its columns are the other fields.

    Raises:
        DecodeError: The value is not a message of GoldenGate.
    """
    if model is not Model.ROW:
        try:
            return _decode(value), {}
        except _READ_ERRORS:
            pass  # the slow path reads the message, or raises the error
    fields: Row = json.loads(value, Row)
    is_row = model is Model.ROW or (model is Model.AUTO and not {"before", "after"} & fields.keys())
    own_names = METADATA if is_row else FIELDS
    own = {name: fields.pop(name) for name in [*fields] if name in own_names}
    if is_row and (name := _repeated_field(value)) is not None:
        reason = "a column has the name of a metadata field: let GoldenGate write the format `json`"
        raise DecodeError(reason, code=ReasonCode.UNEXPECTED_FIELD, path=f"$.{name}")
    if is_row and model is Model.AUTO and any(name.startswith(FLATTENED) for name in fields):
        reason = "flattened images are not read: let GoldenGate write objects, with flatten=false"
        raise DecodeError(reason, code=ReasonCode.UNEXPECTED_FIELD)
    try:
        return msgspec.convert(own, Operation), fields
    except msgspec.ValidationError as error:
        raise json.translate(error) from None


def _repeated_field(value: bytes) -> str | None:
    """Return a metadata field that a message has twice: one of them is a column."""
    if all(value.count(f'"{name}"'.encode()) < 2 for name in METADATA):
        return None
    names: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> Row:
        names[:] = [name for name, _ in pairs]  # the outermost object is the last
        return {}

    try:
        standard_json.loads(value, object_pairs_hook=members, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise json.translate(error) from None
    return next((name for name in names if name in METADATA and names.count(name) > 1), None)


def documents_of(value: bytes) -> Iterator[bytes]:
    """Yield the messages of a value: of an array, or one after the other.

    In the mode ``tx`` the Kafka handler concatenates the operations of a transaction, and with
    ``wrapMessageInJsonArray`` they are an array.

    Raises:
        DecodeError: The value is not JSON.
    """
    if value.lstrip()[:1] == b"[":
        try:
            yield from map(bytes, _raws(value))
        except _READ_ERRORS as error:
            raise json.translate(error) from None
        return
    try:
        text = value.decode().strip()
        start = 0
        while start < len(text):
            _, end = _DECODER.raw_decode(text, start)
            yield text[start:end].encode()
            start = _SPACE.match(text, end).end()  # type: ignore[union-attr]  # may be empty
    except (ValueError, RecursionError) as error:
        raise _document_error(error) from None


def _document_error(error: Exception) -> Exception:
    if isinstance(error, standard_json.JSONDecodeError):
        return DecodeError("not JSON", code=ReasonCode.MALFORMED_JSON)
    return json.translate(error)
