# SPDX-License-Identifier: Apache-2.0
"""The records of repaired rows: exact values at the position of the snapshot, or none."""

import datetime as dt
import decimal
import struct
from typing import Any

import msgspec
import pytest

from changelane.codec import get_codec
from changelane.event import DataChange, Key, Op, Source, is_first_snapshot
from changelane.message import Message
from changelane.position import MySqlPosition, Position, PostgresPosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.verify.canonical_text import CanonicalText
from changelane.spark.verify.comparison import Difference
from changelane.spark.verify.lake_values import NoValueError, lake_value
from changelane.spark.verify.repair import RepairedTable, RepairError
from changelane.spark.verify.table_plan import ComparedColumn, TablePlan
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import Integer

POSITION = PostgresPosition(1001, 1000)


def bits(number: float) -> str:
    return str(struct.unpack(">q", struct.pack(">d", number))[0])


VALUES: list[tuple[str, str, Any]] = [
    ("bigint", "-9223372036854775808", -(1 << 63)),
    ("smallint", "7", 7),
    ("decimal(38,0)", str((1 << 64) - 1), decimal.Decimal((1 << 64) - 1)),
    ("decimal(10,2)", "-1.50", decimal.Decimal("-1.50")),
    ("string", "a:1 ü😀\n", "a:1 ü😀\n"),
    ("string", "", ""),
    ("double", bits(0.1), 0.1),
    ("float", str(struct.unpack(">i", struct.pack(">f", 0.5))[0]), 0.5),
    ("boolean", "false", False),
    ("binary", "00ff", b"\x00\xff"),
    ("date", "-719162", dt.date(1, 1, 1)),
    ("timestamp_ntz", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ("timestamp", "1", dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC)),
    ("array<string>", "3/1/1:a-0:", ["a", None, ""]),
    ("array<int>", "0/1/", []),
]


def table(lake_types: list[str], *, product: str = "postgresql", **changes: Any) -> RepairedTable:
    columns = [
        ComparedColumn(name=name, lake_name=name, lake_type=kind, text=CanonicalText("", ""))
        for name, kind in zip("kabcdefghijlmnopq", ["int", *lake_types], strict=False)
    ]
    plan = TablePlan(
        key_columns=(columns[0],), columns=tuple(columns), ranges=(), unproven_columns={}, **changes
    )
    schema = "public" if product == "postgresql" else None
    source = Source(product, "debezium", "shop", "changelane")
    return RepairedTable(id=TableId("shop", schema, "t"), source=source, columns_plan=plan)


def repaired(
    repaired_table: RepairedTable,
    rows: list[list[str | None]],
    kind: str = "columns",
    position: Position = POSITION,
) -> DataChange:
    record = repaired_table.record(Difference("1:7", kind), rows, position, 1000)
    assert record.value is not None
    assert record.key is not None
    message = Message(record.value.encode(), record.key.encode())
    (event,) = get_codec("debezium-json").decode(message)
    assert isinstance(event, DataChange)
    return event


def test_a_repaired_row_has_the_key_of_the_log_and_not_that_of_the_pipeline() -> None:
    """Other pipelines would reject it, and topics get it with another key."""
    made = msgspec.structs.replace(table(["string", "bigint"]), log_key=("b", "a"))
    read = repaired(made, [["7", "x", "8"]])
    assert read.key == Key(("b", "a"))
    assert repaired(made, [], "extra").key == Key(("k",)), "the source has no row"


@pytest.mark.parametrize("product", ["postgresql", "mariadb", "mysql"])
def test_a_repaired_row_is_a_read_with_the_values_of_the_source(product: str) -> None:
    position = POSITION if product == "postgresql" else MySqlPosition("binlog.000007", 42, 3)
    texts: list[str | None] = ["7", *(text for _, text, _ in VALUES)]
    made = table([kind for kind, _, _ in VALUES], product=product)
    event = repaired(made, [texts], position=position)
    assert event.op is Op.READ
    assert event.after is not None
    assert list(event.after.values()) == [7, *(value for _, _, value in VALUES)]
    assert event.position == position
    assert not is_first_snapshot(event.source), "it would be older than the stream"
    nulls = repaired(made, [["7", *(None for _ in VALUES)]], position=position)
    assert nulls.after is not None
    assert set(nulls.after.values()) == {7, None}


def test_a_row_that_the_source_lacks_is_deleted() -> None:
    event = repaired(table(["string"]), [], "extra")
    assert (event.op, event.before, event.after) == (Op.DELETE, {"k": 7}, None)
    assert event.key is not None
    assert event.key.columns == ("k",)


def test_minus_zero_stays() -> None:
    event = repaired(table(["double"]), [["7", bits(-0.0)]])
    assert event.after is not None
    assert repr(event.after["a"]) == "-0.0"


@pytest.mark.parametrize(
    ("lake_type", "text", "reason"),
    [
        ("date", "0000-00-00", "no such value"),
        ("timestamp", str(1 << 62), "no such value"),
        ("array<int>", "4/2/1:11:21:31:4", "no such value"),
        ("decimal(3,1)", "1.25", "no such value"),
        ("string", "__debezium_unavailable_value", "no form"),
    ],
)
def test_a_row_without_an_exact_record_is_not_repaired(
    lake_type: str, text: str, reason: str
) -> None:
    with pytest.raises(RepairError, match=reason):
        repaired(table([lake_type]), [["7", text]])


def test_a_key_with_several_rows_of_the_lake_is_read_and_with_several_of_the_source_is_not() -> (
    None
):
    assert repaired(table(["string"]), [["7", "x"]], "repeated").op is Op.READ
    with pytest.raises(RepairError, match="several rows of the source"):
        repaired(table(["string"]), [["7", "x"], ["7", "x"]], "repeated")


@pytest.mark.parametrize("kind", ["missing", "columns", "extra"])
def test_a_row_with_columns_that_are_not_compared_is_not_repaired(kind: str) -> None:
    """A read sets the whole row, so that these columns would become NULL."""
    made = table(["string"], has_all_columns=False)
    with pytest.raises(RepairError, match="not proven"):
        repaired(made, [["7", "x"]], kind)
    assert repaired(made, [], "extra").op is Op.DELETE


def test_a_repair_is_between_the_changes_of_its_snapshot_and_later_ones() -> None:
    low = 1000
    repairs = [PostgresPosition(low + number, low) for number in (1, 100_000)]
    before, after = PostgresPosition(1 << 40, low - 1), PostgresPosition(1, low + 50)
    orders = [encode_order(position) for position in (before, *repairs, after)]
    assert orders == sorted(orders)
    assert len(set(orders)) == 4


def test_an_unknown_text_has_no_value() -> None:
    with pytest.raises(NoValueError):
        lake_value("yes", "boolean")


def test_a_repaired_row_does_not_hide_that_a_column_may_have_been_renamed() -> None:
    """Its schema has no defaults: the new column would get the default in all former rows."""
    repaired_table = table(["int"])

    def row(at: int, key: int, **values: int) -> DataChange:
        columns = (
            Column("k", Integer(32), nullable=False),
            *(Column(name, Integer(32), nullable=True, default=5) for name in values),
        )
        return DataChange(
            op=Op.CREATE,
            table=repaired_table.id,
            key=Key(("k",)),
            after={"k": key, **values},
            schema=TableSchema(columns),
            position=PostgresPosition(at, at),
            source=Source("postgresql", "debezium", "shop", "3"),
        )

    tables = MemoryTables()
    repair = repaired(repaired_table, [["7", "70"]], position=PostgresPosition(2, 2))
    tables.apply([row(1, 7, a=70), row(1, 8, a=80)])
    tables.apply([repair])
    tables.apply([row(3, 9, b=90)])
    assert {key: set(names) for key, names in tables.incomplete(repaired_table.id).items()} == {
        b"[7]": {"b"},
        b"[8]": {"b"},
    }
