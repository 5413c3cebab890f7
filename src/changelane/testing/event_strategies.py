# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for change events within the capabilities of a format.

``events(carries)`` generates events without losses in a format with these capabilities; with the
capabilities of ``native-json`` it generates all events.
"""

import string
from typing import Any, Final

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from changelane.event import (
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Image,
    Key,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.contract.capabilities import Carries, SchemaDetail
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
)
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.value_strategies import names, simple_json, text, types, values
from changelane.types import UNAVAILABLE, Integer, LogicalType, String, Uuid, Value

_KEY_TYPES: Final = (Integer, String, Uuid)
_big: Final = st.integers(0, 2**63 - 1)
_small: Final = st.integers(0, 2**31 - 1)
_lsn_text: Final = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)
).map(lambda parts: "{:08x}:{:08x}:{:04x}".format(*parts))

_POSITIONS: Final[dict[str, SearchStrategy[Position]]] = {
    "mysql": st.builds(
        MySqlPosition,
        st.integers(1, 999_999).map(lambda number: f"mysql-bin.{number:06}"),
        _big,
        _small,
        st.sampled_from([None, "0-1-17"]),
    ),
    "postgresql": st.builds(PostgresPosition, _big, st.one_of(st.none(), _big)),
    "scn": st.builds(ScnPosition, _big, st.one_of(st.none(), _big)),
    "lsn": st.builds(LsnPosition, _lsn_text, st.one_of(st.none(), _lsn_text)),
    "sequence": st.builds(SequencePosition, _big),
    "offset": st.builds(OffsetPosition, st.just("orders"), _small, _big),
}
_PRODUCTS: Final = {
    "mysql": ("mysql", "mariadb"),
    "postgresql": ("postgresql",),
    "scn": ("oracle",),
    "lsn": ("sqlserver",),
}
_UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


@st.composite
def _column(draw: st.DrawFn, name: str, kind: LogicalType, carries: Carries) -> Column:
    if not carries.column_flags:
        return Column(name, kind)
    return Column(name, kind, nullable=draw(st.booleans()))


@st.composite
def schemas(draw: st.DrawFn, carries: Carries, *, count: int = 4) -> TableSchema:
    """Schemas of a possible key column and up to *count* other columns."""
    key_types = [kind() for kind in _KEY_TYPES if kind in carries.types]
    column_names = draw(st.lists(names, min_size=1, max_size=count + 1, unique=True))
    first, *other_names = column_names
    columns = [Column(first, draw(st.sampled_from(key_types)))]
    if carries.column_flags:
        columns = [msgspec.structs.replace(columns[0], nullable=False)]
    columns.extend(draw(_column(name, draw(types(carries)), carries)) for name in other_names)
    return TableSchema(tuple(columns))


def _value(column: Column, carries: Carries) -> SearchStrategy[Value]:
    strategy = values(column.type, carries.extremes)
    return strategy if column.nullable is False else st.one_of(strategy, st.none())


def _row(schema: TableSchema, carries: Carries) -> SearchStrategy[dict[str, Any]]:
    first = schema.columns[0]
    return st.fixed_dictionaries(
        {
            column.name: values(column.type) if column is first else _value(column, carries)
            for column in schema.columns
        }
    )


@st.composite
def _untyped_row(draw: st.DrawFn, carries: Carries) -> dict[str, Any]:
    value = text if carries.text_only else simple_json()
    row = draw(st.dictionaries(names, st.one_of(value, st.none()), min_size=1, max_size=4))
    first = next(iter(row))
    return row | {first: draw(text if carries.text_only else st.integers(-(2**63), 2**63 - 1))}


@st.composite
def _part(draw: st.DrawFn, row: dict[str, Any], key: str, carries: Carries) -> Image:
    """Remove columns from an image, or make them unavailable, except the key."""
    other_names = [name for name in row if name != key]
    fates = ["keep"]
    if carries.absent:
        fates.append("absent")
    if carries.unavailable:
        fates.append("unavailable")
    image = dict(row)
    for name in other_names:
        fate = draw(st.sampled_from(fates))
        if fate == "absent":
            del image[name]
        elif fate == "unavailable":
            image[name] = UNAVAILABLE
    return image


@st.composite
def _images(draw: st.DrawFn, op: Op, rows: Any, key: str, carries: Carries) -> dict[str, Any]:
    row = draw(rows)
    match op:
        case Op.CREATE | Op.READ:
            return {"after": row}
        case Op.DELETE:
            is_partial = carries.delete_partial and draw(st.booleans())
            return {"before": {key: row[key]} if is_partial else row}
        case Op.UPDATE:
            new = draw(rows)
            if row.keys() != new.keys():
                new = {name: new.get(name, value) for name, value in row.items()}
            if not (carries.key_change and carries.before and draw(st.booleans())):
                new = new | {key: row[key]}
                after: Image = draw(_part(new, key, carries))
            else:
                after = new
            if not carries.before or draw(st.booleans()):
                return {"before": None, "after": after if new[key] == row[key] else new}
            if carries.partial_before and new[key] == row[key]:
                return {"before": draw(_part(row, key, carries)), "after": after}
            return {"before": row, "after": after}


@st.composite
def tables(draw: st.DrawFn, carries: Carries) -> TableId:
    """Table names with the parts that a format carries."""
    parts = {part: draw(names) for part in ("database", "schema", "name") if part in carries.table}
    return TableId(**parts)


def transactions(carries: Carries) -> SearchStrategy[Transaction | None]:
    """Transactions with the fields that a format carries."""
    if "id" not in carries.transaction:
        return st.none()
    counts = {"order": st.integers(1, 10**9), "table_order": st.integers(1, 10**9)}
    fields: dict[str, SearchStrategy[Any]] = {
        name: counts[name] for name in counts if name in carries.transaction
    }
    return st.one_of(
        st.none(), st.builds(Transaction, st.text(string.digits, min_size=1, max_size=9), **fields)
    )


@st.composite
def origins(draw: st.DrawFn, carries: Carries, op: Op | None = None) -> dict[str, Any]:
    """Consistent positions, sources and times."""
    # a time position follows from the event's time and the message's offset, so it is not drawn
    domain = draw(st.sampled_from([None, *sorted(carries.positions & _POSITIONS.keys())]))
    products = _PRODUCTS.get(domain or "", ("mysql", "postgresql"))
    products = tuple(p for p in products if not carries.products or p in carries.products)
    source_fields = {
        "product": draw(st.sampled_from(products)),
        "connector": "debezium",
        "server": draw(st.sampled_from(["shop", "a.b"])),
        "version": "3.0.0.Final",
        "snapshot": "true" if op is Op.READ else None,
    }
    source_fields = {name: value for name, value in source_fields.items() if name in carries.source}
    stamped = {
        name: value
        for name in Source.__struct_fields__
        if (value := getattr(carries.stamp, name)) is not None and name not in source_fields
    }
    origin: dict[str, Any] = {"source": Source(**source_fields, **stamped)}
    if domain is not None:
        origin["position"] = draw(_POSITIONS[domain])
    for field, unit in (
        ("source_time_ns", carries.source_time),
        ("process_time_ns", carries.process_time),
    ):
        if unit:
            per_second = 10**9 // _UNITS[unit]
            seconds = st.integers(10**9 * per_second, 4 * 10**9 * per_second)
            count = draw(st.one_of(st.none(), seconds))
            origin[field] = None if count is None else count * _UNITS[unit]
    return origin


@st.composite
def data_changes(draw: st.DrawFn, carries: Carries) -> DataChange:
    """Row changes without losses in a format with these capabilities."""
    op = draw(st.sampled_from(sorted(carries.operations)))
    has_schema = carries.schema is not SchemaDetail.NONE and draw(st.integers(0, 4)) > 0
    schema = draw(schemas(carries)) if has_schema else None
    if schema is not None:
        rows: Any = _row(schema, carries)
        key = schema.columns[0].name
    else:
        row = draw(_untyped_row(carries))
        key = next(iter(row))
        rows = st.just(row)
    names_key = carries.requires_key or (carries.key and draw(st.integers(0, 4)) > 0)
    images = draw(_images(op, rows, key, carries))
    completeness = after_holds = Completeness.UNKNOWN if has_schema else Completeness.FULL
    before, after = images.get("before"), images.get("after")
    if op is Op.UPDATE and not has_schema and carries.partial_after:
        after_holds = draw(st.sampled_from([Completeness.FULL, Completeness.UNKNOWN]))
    return DataChange(
        op,
        draw(tables(carries)),
        key=Key((key,)) if names_key else None,
        before=before,
        after=after,
        schema=schema,
        transaction=draw(transactions(carries)),
        before_holds=Completeness.UNKNOWN if before is None else completeness,
        after_holds=Completeness.UNKNOWN if after is None else after_holds,
        **draw(origins(carries, op)),
    )


@st.composite
def _others(draw: st.DrawFn, carries: Carries, kind: str) -> ChangeEvent:
    table = draw(tables(carries))
    origin = draw(origins(carries))
    match kind:
        case "schema":
            ddl = "ALTER TABLE t ADD COLUMN c INT"
            return SchemaChange(table, "alter", ddl, **origin)
        case "truncate":
            return Truncate(table, transaction=draw(transactions(carries)), **origin)
        case "transaction":
            transaction = draw(transactions(carries)) or Transaction("1")
            transaction = Transaction(transaction.id if "id" in carries.transaction else "")
            return TransactionMarker("begin", transaction, **origin)
        case "watermark":
            return Watermark(**origin)
        case "message":
            return LogicalMessage("prefix", draw(st.binary(max_size=9)), **origin)
        case "tombstone":
            schema = TableSchema((Column("id", Integer(64), nullable=False),))
            return Tombstone(table, {"id": draw(_big)}, schema)
        case _:
            return Control("other", "text", **origin)


@st.composite
def events(draw: st.DrawFn, carries: Carries) -> ChangeEvent:
    """Events without losses in a format with these capabilities; most are row changes.

    Half updates are not generated: the tests of the join use the messages of formats with halves.
    """
    kinds = sorted(carries.kinds - {"half"})
    kind = draw(st.sampled_from(["data"] * (2 * len(kinds) + 1) + kinds))
    event: ChangeEvent = draw(data_changes(carries) if kind == "data" else _others(carries, kind))
    return event
