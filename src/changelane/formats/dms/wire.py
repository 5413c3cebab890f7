# SPDX-License-Identifier: Apache-2.0
"""The wire classes of AWS DMS's messages, with the producer's own names and order."""

import decimal
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.contract.column_values import whole_unless_fraction

Row = dict[str, Any]
"""Columns and JSON values."""

_Number = int | str
"""DMS writes ids and counts as numbers; a text with other content is kept, too."""


class KnownMetadata(
    msgspec.Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, gc=False
):
    """The object ``metadata`` with documented keys only.

    The keys from ``transaction_record_id`` on are those of ``IncludeTransactionDetails``.
    """

    timestamp: str | None = None
    record_type: str
    operation: str
    partition_key_type: str | None = None
    partition_key_value: _Number | None = None
    schema_name: str | None = None
    table_name: str | None = None
    transaction_id: _Number | None = None
    transaction_record_id: _Number | None = None
    prev_transaction_id: _Number | None = None
    prev_transaction_record_id: _Number | None = None
    commit_timestamp: str | None = None
    stream_position: str | None = None


class AnyMetadata(KnownMetadata, rename="kebab", forbid_unknown_fields=False):
    """The object ``metadata`` with any keys; :class:`AllMetadata` reads the undocumented ones."""


class AllMetadata(msgspec.Struct):
    """A message with all keys of ``metadata``."""

    metadata: dict[str, Any]


class ColumnDefinition(msgspec.Struct):
    """A column in the definition of a table."""

    type: str
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    nullable: bool | None = None


class TableDefinition(msgspec.Struct, rename="kebab"):
    """The object ``table-def`` of a control record."""

    columns: dict[str, ColumnDefinition] = {}
    primary_key: list[str] = []


METADATA: Final = frozenset(KnownMetadata.__struct_encode_fields__)
"""The documented keys of ``metadata``."""
RESERVED: Final = frozenset({"data", "metadata", "control"})
"""The keys of a message besides the before image, whose key the user chooses."""


class Record(msgspec.Struct):
    """A message with documented keys; ``before`` has the key that the user chose."""

    metadata: KnownMetadata
    data: Row | None = None
    before: Row | None = None
    control: Row | None = None


Loaded = tuple[Record, Row, Row]
"""A message, its undocumented keys in ``metadata``, and its other undocumented keys."""

_NO_FIELDS: Final[Row] = {}


def _number(text: str) -> Any:
    """Return a JSON number with a fraction or an exponent.

    DMS writes long integers in exponent form: ``1.2345E18``. A whole number is an integer.
    """
    number = decimal.Decimal(text)
    if "e" in text or "E" in text:
        return whole_unless_fraction(number)
    return number


def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind, float_hook=_number).decode


def _message_class(before_field: str, metadata_class: type[KnownMetadata]) -> Any:
    """Return the wire class of messages, with the fields of :class:`Record`.

    Args:
        before_field: The key of the before image in a message.
        metadata_class: The class of ``metadata``.
    """
    return msgspec.defstruct(
        "Message",
        [
            ("metadata", metadata_class),
            ("data", Row | None, None),
            ("before", Row | None, None),
            ("control", Row | None, None),
        ],
        rename={"before": before_field},
        forbid_unknown_fields=metadata_class is KnownMetadata,
        gc=False,
    )


@lru_cache(maxsize=64)
def loader(before_field: str) -> Callable[[bytes], Loaded]:
    """Return the function from the bytes of a message to the message.

    The function raises :class:`DecodeError` if the bytes are not a message of DMS.

    Args:
        before_field: The key of the before image in a message.
    """
    known, other = (
        _message_class(before_field, metadata) for metadata in (KnownMetadata, AnyMetadata)
    )
    documented = RESERVED | {before_field}
    decode_known, decode_other = _decoder(known), _decoder(other)
    decode_fields, decode_metadata = _decoder(Row), _decoder(AllMetadata)

    def load(value: bytes) -> Loaded:
        try:
            return decode_known(value), _NO_FIELDS, _NO_FIELDS
        except Exception as error:  # noqa: BLE001 - translated, and re-raised when not msgspec's
            translated = json.translate(error)
        if not isinstance(translated, DecodeError) or "unknown field" not in translated.reason:
            raise translated from None
        try:
            fields, metadata = decode_fields(value), decode_metadata(value).metadata
            return (
                decode_other(value),
                {name: metadata[name] for name in metadata if name not in METADATA},
                {name: fields[name] for name in fields if name not in documented},
            )
        except Exception as error:  # noqa: BLE001 - as above
            raise json.translate(error) from None

    return load
