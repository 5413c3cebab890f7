# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Spanner's change records, in both spellings.

A change stream has names such as ``commit_timestamp``. Google's Dataflow template to Pub/Sub
writes the fields of Apache Beam's class ``DataChangeRecord``: ``commitTimestamp`` with seconds and
nanoseconds, ``rowType``, and mods with JSON as text. They are converted to the first spelling.
"""

import datetime as dt
import decimal
import re
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode

Row = dict[str, Any]
"""Names and JSON values."""


class Mod(msgspec.Struct, gc=False):
    """A change of one row."""

    keys: Row
    new_values: Row | None = None
    old_values: Row | None = None


class ColumnType(msgspec.Struct, gc=False):
    """A column in ``column_types``."""

    name: str
    type: Row
    is_primary_key: bool = False
    ordinal_position: int = 0


class DataChangeRecord(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A data change record."""

    table_name: str
    mod_type: str
    value_capture_type: str
    mods: list[Mod]
    column_types: Any  # raw JSON, which a reader parses once; a list in the other spelling
    commit_timestamp: str | None = None
    record_sequence: str | None = None
    server_transaction_id: str | None = None
    is_last_record_in_transaction_in_partition: bool | None = None
    number_of_records_in_transaction: int | None = None
    number_of_partitions_in_transaction: int | None = None
    transaction_tag: str | None = None
    is_system_transaction: bool | None = None


class PlainRecord(DataChangeRecord, forbid_unknown_fields=True, gc=False):
    """A data change record in the spelling of change streams, with documented keys only."""

    column_types: msgspec.Raw


class ConvertedRecord(DataChangeRecord, forbid_unknown_fields=True, gc=False):
    """A data change record that was converted from another spelling or shape."""

    column_types: list[ColumnType]


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """A record that was read.

    Attributes:
        kind: ``data_change_record``, or the kind of another record.
        record: The data change record; ``None`` for another one.
        fields: The undocumented keys of a data change record, or another record.
        path: The JSON path of the record.
    """

    kind: str
    record: DataChangeRecord | None
    fields: Row
    path: str


FIELDS: Final = frozenset(DataChangeRecord.__struct_fields__)
DATA: Final = "data_change_record"
OTHERS: Final = frozenset(
    {
        "heartbeat_record",
        "child_partitions_record",
        "partition_start_record",
        "partition_end_record",
        "partition_event_record",
    }
)

_NO_FIELDS: Final[Row] = {}
_EPOCH: Final = dt.datetime(1970, 1, 1)
_RENAMED: Final = {"row_type": "column_types"}
_VALUES: Final = frozenset({"keys", "new_values", "old_values"})
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")
_record: Final = msgspec.json.Decoder(PlainRecord, float_hook=decimal.Decimal).decode
_column_types: Final = msgspec.json.Decoder(list[ColumnType]).decode


def load(value: bytes) -> tuple[Loaded, ...]:
    """Return the records of a message: one, or those of an array of change records.

    Raises:
        DecodeError: The bytes are not records of a change stream.
    """
    try:
        return (Loaded(DATA, _record(value), _NO_FIELDS, "$"),)
    except (ValueError, RecursionError, decimal.DecimalException):
        pass  # the slow path reads the message, or raises the error
    message = json.loads(value, object)
    if isinstance(message, list):
        return tuple(
            loaded
            for index, item in enumerate(message)
            for loaded in _change_record(item, f"$[{index}]")
        )
    return tuple(_change_record(message, "$"))


def _change_record(item: object, path: str) -> list[Loaded]:
    """Return the records in a change record: the one without the name of its kind, or others.

    In GoogleSQL each kind is an array with at most one record, in PostgreSQL the record. The API
    has names such as ``heartbeatRecord``.
    """
    fields = _object(item, path)
    kinds = {name: _CAPITAL.sub(r"_\1", name).lower() for name in fields}
    if not (OTHERS | {DATA}) & set(kinds.values()):
        return [_data_record(fields, path)]
    records: list[Loaded] = []
    for name, part in fields.items():
        kind = kinds[name]
        if kind not in OTHERS and kind != DATA:
            raise DecodeError(
                "an unknown kind of record", code=ReasonCode.UNKNOWN_KIND, path=f"{path}.{DATA}"
            )
        parts = part if isinstance(part, list) else [] if part is None else [part]
        for record in parts:
            place = f"{path}.{name}"
            if kind == DATA:
                records.append(_data_record(_object(record, place), place))
            else:
                records.append(Loaded(kind, None, _object(record, place), place))
    return records


def _object(value: object, path: str) -> Row:
    if not isinstance(value, dict):
        raise DecodeError("not an object", code=ReasonCode.WRONG_TYPE, path=path)
    return value


def _data_record(fields: Row, path: str) -> Loaded:
    renamed = {_snake(name): value for name, value in fields.items()}
    if len(renamed) < len(fields):
        raise DecodeError("a key in both spellings", code=ReasonCode.UNEXPECTED_FIELD, path=path)
    known = {name: renamed[name] for name in renamed if name in FIELDS}
    for name, convert in (("mods", _mod), ("column_types", _column)):
        if isinstance(known.get(name), list):
            known[name] = [
                convert(item, f"{path}.{name}[{index}]") if isinstance(item, dict) else item
                for index, item in enumerate(known[name])
            ]
    if isinstance(known.get("commit_timestamp"), dict):
        known["commit_timestamp"] = _beam_time(known["commit_timestamp"], path)
    record = json.convert(known, ConvertedRecord, path)
    others = {name: renamed[name] for name in renamed if name not in FIELDS}
    return Loaded(DATA, record, others, path)


def columns_of(change_record: DataChangeRecord, path: str) -> list[ColumnType]:
    """Return the columns of a record.

    Raises:
        DecodeError: The raw JSON is no array of columns.
    """
    if not isinstance(change_record, PlainRecord):
        columns: list[ColumnType] = change_record.column_types
        return columns
    try:
        return _column_types(change_record.column_types)
    except Exception as error:  # noqa: BLE001 - translated, and re-raised when not msgspec's
        translated = json.translate(error)
    if not isinstance(translated, DecodeError):
        raise translated
    place = f"{path}.column_types{translated.path.removeprefix('$')}"
    raise DecodeError(translated.reason, code=translated.code, path=place)


def _snake(name: str) -> str:
    """Return a name in the spelling of change streams.

    >>> _snake("commitTimestamp"), _snake("rowType")
    ('commit_timestamp', 'column_types')
    """
    snake = _CAPITAL.sub(r"_\1", name).lower() if name.isascii() else name
    return _RENAMED.get(snake, snake) if _RENAMED.get(snake, snake) in FIELDS else name


def _mod(mod: Row, path: str) -> Row:
    """Return a mod with objects instead of JSON texts.

    The values have the type JSON in Spanner, so that clients may write them as texts.
    """
    result: Row = {}
    for name, value in mod.items():
        plain = _CAPITAL.sub(r"_\1", name).lower().removesuffix("_json")
        if plain not in _VALUES:
            result[name] = value
        elif isinstance(value, str):
            result[plain] = _parsed(value, f"{path}.{name}") if value else {}
        else:
            result[plain] = value
    return result


def _column(fields: Row, path: str) -> Row:
    """Return a column whose type is an object, which Beam has as text in ``code``.

    The type has the type JSON in Spanner, so that clients may write it as text.
    """
    result = {_CAPITAL.sub(r"_\1", name).lower(): value for name, value in fields.items()}
    kind = result.get("type")
    if isinstance(kind, str):
        kind = result["type"] = _parsed(kind, f"{path}.type")
    code = kind.get("code") if isinstance(kind, dict) else None
    if isinstance(code, str) and code.startswith("{"):
        result["type"] = _parsed(code, f"{path}.type.code")
    return result


def _parsed(text: str, path: str) -> Row:
    try:
        return json.loads(text.encode("utf-8", "surrogatepass"), Row)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def _beam_time(parts: Row, path: str) -> str:
    """Return the text of a time in seconds and nanoseconds."""
    seconds, nanos = parts.get("seconds"), parts.get("nanos", 0)
    if (
        type(seconds) is not int
        or type(nanos) is not int
        or not -62_135_596_800 <= seconds < 253_402_300_800
        or not 0 <= nanos < 10**9
    ):
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=f"{path}.commitTimestamp")
    return f"{(_EPOCH + dt.timedelta(seconds=seconds)).isoformat()}.{nanos:09}Z"
