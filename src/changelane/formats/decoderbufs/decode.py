# SPDX-License-Identifier: Apache-2.0
"""Messages of postgres-decoderbufs to change events."""

import re
from typing import Any, Final, NamedTuple

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Transaction,
    TransactionMarker,
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.postgres_type_numbers import NO_MODIFIER, type_text_of
from changelane.formats.contract.protobuf import Fields, loads
from changelane.formats.decoderbufs.columns import kind_of, read
from changelane.formats.decoderbufs.options import Options
from changelane.formats.decoderbufs.wire import (
    BEGIN,
    COMMIT,
    DATA,
    DATUM,
    DELETE,
    INSERT,
    MISSING,
    ROW,
    TYPE_INFO,
    UPDATE,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema, option_for_table
from changelane.types import UNAVAILABLE, Value

SOURCE: Final = Source(product="postgresql", connector="decoderbufs")
OPERATIONS: Final = {INSERT: Op.CREATE, UPDATE: Op.UPDATE, DELETE: Op.DELETE}
STATUSES: Final = {BEGIN: "begin", COMMIT: "commit"}
MOST_US: Final = 253_402_300_800_000_000

_MAX_TABLES: Final = 4096
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')
_U32: Final = 1 << 32


class _Tuple(NamedTuple):
    """The columns of a row and their datums; a datum is empty for NULL."""

    schema: TableSchema
    datums: tuple[Fields, ...]


class Reader:
    """Decodes messages."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._keys = {name: tuple(columns) for name, columns in options.keys.items()}
        self._tables: BoundedCache[str, tuple[TableId, Key | None]] = BoundedCache(_MAX_TABLES)
        self._schemas: BoundedCache[tuple[Any, ...], TableSchema] = BoundedCache(_MAX_TABLES)

    def __call__(self, value: bytes) -> ChangeEvent:
        """Return the event of a message.

        Raises:
            DecodeError: The bytes are no such message, or a value is not of its type.
        """
        fields = loads(value, ROW, "$")
        number = fields.get("op")
        transaction = _transaction(fields.get("transaction_id"))
        time_ns = _time_ns(fields.get("commit_time"))
        if number in STATUSES:
            status = STATUSES[number]
            return TransactionMarker(status, transaction or Transaction(""), None, SOURCE, time_ns)
        op = OPERATIONS.get(number)  # type: ignore[arg-type]
        if op is None:
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown operation", code=code, path="$.op")
        table, key = self._table(fields.get("table"))
        new = self._tuple(fields, "new_tuple")
        old = self._tuple(fields, "old_tuple")
        if (new is None) is not (op is Op.DELETE):
            code = ReasonCode.MISSING_IMAGE if new is None else ReasonCode.UNEXPECTED_IMAGE
            raise DecodeError("not the row of this operation", code=code, path="$.new_tuple")
        if op is Op.CREATE and old is not None:
            reason, code = "an insert has no old row", ReasonCode.UNEXPECTED_IMAGE
            raise DecodeError(reason, code=code, path="$.old_tuple")
        if op is Op.DELETE and old is None:
            reason = "the deleted row is unknown: the table has no replica identity"
            raise DecodeError(reason, code=ReasonCode.MISSING_IMAGE, path="$.old_tuple")
        after = None if new is None else _image(new, "$.new_tuple", drops_nulls=False)
        before = None
        if old is not None:
            is_partial = self._options.replica_identity == "default"
            before = _image(old, "$.old_tuple", drops_nulls=is_partial)
        row = new or old
        return DataChange(
            op,
            table,
            key,
            before,
            after,
            None if row is None else row.schema,
            None,
            transaction,
            SOURCE,
            time_ns,
            None,
            Completeness.UNKNOWN,
            Completeness.UNKNOWN,
        )

    def _table(self, name: str | None) -> tuple[TableId, Key | None]:
        if name is None:
            raise DecodeError("no table", code=ReasonCode.MISSING_FIELD, path="$.table")
        cached = self._tables.get(name)
        if cached is None:
            table = table_of(name)
            columns = option_for_table(self._keys, table)
            key = Key(columns, KeyOrigin.CONFIG) if columns else None
            cached = self._tables.add(name, (table, key))
        return cached

    def _tuple(self, fields: Fields, name: str) -> _Tuple | None:
        messages = fields.get(name)
        if not messages:
            return None
        path = f"$.{name}"
        datums = tuple(loads(message, DATUM, f"{path}[{i}]") for i, message in enumerate(messages))
        types = fields.get("new_typeinfo", ()) if name == "new_tuple" else ()
        if types and len(types) != len(datums):
            reason = "another number of types than of columns"
            raise DecodeError(reason, code=ReasonCode.WRONG_LENGTH, path="$.new_typeinfo")
        shape = (*types, *((d.get("column_name"), d.get("column_type")) for d in datums))
        schema = self._schemas.get(shape)
        if schema is None:
            infos = [loads(info, TYPE_INFO, "$.new_typeinfo") for info in types]
            schema = self._schemas.add(shape, _schema(datums, infos, path))
        return _Tuple(schema, datums)


def _schema(datums: tuple[Fields, ...], infos: list[Fields], path: str) -> TableSchema:
    columns: list[Column] = []
    for index, datum in enumerate(datums):
        name = datum.get("column_name")
        if name is None:
            code = ReasonCode.MISSING_FIELD
            raise DecodeError("no name", code=code, path=f"{path}[{index}].column_name")
        text = type_text_of(datum.get("column_type", 0), NO_MODIFIER)
        nullable = None
        if infos:
            text = infos[index].get("modifier", text)
            nullable = infos[index].get("value_optional")
        columns.append(Column(_unquoted(name), kind_of(text), text, nullable))
    try:
        return TableSchema(tuple(columns))
    except ValueError as error:
        raise DecodeError(str(error), code=ReasonCode.WRONG_SCHEMA, path=path) from None


def _image(row: _Tuple, path: str, *, drops_nulls: bool) -> dict[str, Value]:
    image: dict[str, Value] = {}
    for index, (column, datum) in enumerate(zip(row.schema.columns, row.datums, strict=True)):
        if datum.get(MISSING):
            image[column.name] = UNAVAILABLE
            continue
        found = [name for name in DATA if name in datum]
        if not found:
            if not drops_nulls:
                image[column.name] = None
            continue
        place = f"{path}[{index}]"
        if len(found) > 1:
            raise DecodeError("two values", code=ReasonCode.MALFORMED, path=place)
        try:
            image[column.name] = read(column.type, (found[0], datum[found[0]]))
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=place) from None
    return image


def table_of(name: str) -> TableId:
    """Return the table of a qualified name in SQL.

    >>> table_of('public."a.""b"')
    TableId(database=None, schema='public', name='a."b')
    """
    parts: list[str] = []
    at = 0
    while True:
        match = _NAME.match(name, at)
        if match is None:
            return TableId(None, None, name or None)
        parts.append(match[2] if match[1] is None else match[1].replace('""', '"'))
        at = match.end()
        if at == len(name):
            break
        if name[at] != ".":
            return TableId(None, None, name)
        at += 1
    if len(parts) == 2:
        return TableId(None, parts[0], parts[1])
    return TableId(None, None, parts[0]) if len(parts) == 1 else TableId(None, None, name)


def _unquoted(name: str) -> str:
    match = _NAME.fullmatch(name)
    is_quoted = match is not None and match[1] is not None
    return name[1:-1].replace('""', '"') if is_quoted else name


def _transaction(number: int | None) -> Transaction | None:
    if number is None:
        return None
    if not 0 <= number < _U32:
        code = ReasonCode.VALUE_OUT_OF_RANGE
        raise DecodeError("no transaction", code=code, path="$.transaction_id")
    return Transaction(str(number))


def _time_ns(microseconds: int | None) -> int | None:
    if microseconds is None:
        return None
    if not -MOST_US < microseconds < MOST_US:
        code = ReasonCode.VALUE_OUT_OF_RANGE
        raise DecodeError("out of range", code=code, path="$.commit_time")
    return microseconds * 1000
