"""What a table takes of a batch and what is quarantined: by key, by schema and by server."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession

from changelane.event import DataChange, Key, Op, SchemaChange, Source, Truncate
from changelane.position import OffsetPosition, Position, SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.hudi import Hudi
from changelane.spark.lake.modes import Modes, TableMode
from changelane.spark.rows.batch_stats import BatchReport
from changelane.types import Array, Boolean, Bytes, Date, Decimal, Integer, String, Timestamp

TABLE: Final = TableId("shop", None, "orders")
KEY: Final = Key(("id",))


def schema(**types: Any) -> TableSchema:
    return TableSchema(tuple(Column(name, kind) for name, kind in types.items()))


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """What is taken and what not is decided before any table format matters; see also `both`."""
    return str(tmp_path / lake_tables.LAKES[-1])


@pytest.fixture(params=lake_tables.LAKES)
def both(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The folder of a lake of each format."""
    return str(tmp_path / request.param)


NARROW: Final = schema(id=Integer(), v=Integer(32))
WIDE: Final = schema(id=Integer(), v=Integer(64))


def row(
    position: Position, *, op: str = "c", told: TableSchema | None = NARROW, **image: Any
) -> Any:
    before, after = (image, None) if op == "d" else (None, image)
    return DataChange(
        Op(op), TABLE, KEY, before=before, after=after, schema=told, position=position
    )


def at(partition: int, offset: int) -> Position:
    return OffsetPosition("orders", partition, offset)


def of(server: str, event: Any) -> Any:
    return msgspec.structs.replace(event, source=Source(server=server))


def rows(spark: SparkSession, lake: str, *names: str) -> list[tuple[Any, ...]]:
    found = lake_tables.table_of(spark, lake, TABLE)
    return sorted(tuple(one) for one in found.select(*(names or ("id", "v"))).collect())


def notes(report: BatchReport) -> str:
    return "; ".join(table.note for table in report.tables)


def test_keys_of_several_partitions_are_applied_beside_each_other(
    spark: SparkSession, lake: str
) -> None:
    first = [row(at(0, 5), id=1, v=1), row(at(1, 3), id=2, v=2), row(at(1, 4), id=2, v=3)]
    reports = lake_tables.land(spark, lake, [first, [row(at(0, 6), id=1, v=4)]])
    assert [report.quarantined for report in reports] == [{}, {}]
    assert rows(spark, lake) == [(1, 4), (2, 3)]


def test_a_key_of_two_partitions_is_set_aside_and_no_other(spark: SparkSession, lake: str) -> None:
    batch = [row(at(0, 5), id=1, v=1), row(at(1, 9), id=1, v=2), row(at(1, 3), id=2, v=2)]
    report = lake_tables.apply(spark, lake, batch)
    assert report.quarantined == {"unordered": 2}
    assert rows(spark, lake) == [(2, 2)]


@pytest.mark.parametrize(
    ("told", "image"),
    [
        (schema(id=String(), v=Integer(32)), {"id": "x", "v": 2}),
        (schema(id=Integer(), v=Date()), {"id": 1, "v": dt.date(2024, 2, 29)}),
    ],
)
def test_an_event_that_the_schema_rejects_is_in_conflict_with_no_other_partition(
    spark: SparkSession, lake: str, told: TableSchema, image: dict[str, Any]
) -> None:
    batch = [row(at(0, 5), id=1, v=1), row(at(1, 3), told=told, **image)]
    assert lake_tables.apply(spark, lake, batch).quarantined == {"schema_mismatch": 1}
    assert rows(spark, lake) == [(1, 1)]


@pytest.mark.parametrize("op", ["c", "d"])
def test_a_key_that_another_partition_told_before_is_set_aside(
    spark: SparkSession, lake: str, op: str
) -> None:
    late = row(at(1, 9), op=op, id=1, v=2)
    reports = lake_tables.land(spark, lake, [[row(at(0, 5), id=1, v=1)], [late]])
    assert reports[1].quarantined == {"unordered": 1}
    assert rows(spark, lake) == [(1, 1)]


def test_a_key_that_another_partition_told_in_part_is_set_aside(
    spark: SparkSession, lake: str
) -> None:
    parts = [row(at(*place), op="u", told=None, id="1", v="1") for place in ((0, 5), (1, 9))]
    reports = lake_tables.land(spark, lake, [[part] for part in parts])
    assert reports[1].quarantined == {"unordered": 1}


def test_a_key_that_another_partition_deleted_is_set_aside(spark: SparkSession, both: str) -> None:
    batches = [
        [row(at(0, 5), id=1, v=1), row(at(0, 6), op="d", id=1, v=1)],
        [row(at(1, 2), id=1, v=2), row(at(1, 3), id=2, v=2)],
    ]
    reports = lake_tables.land(spark, both, batches)
    assert reports[1].quarantined == {"unordered": 1}
    assert rows(spark, both) == [(2, 2)]


def test_a_key_change_into_another_partition_is_set_aside(spark: SparkSession, lake: str) -> None:
    moved = DataChange(
        Op.UPDATE,
        TABLE,
        KEY,
        before={"id": 1, "v": 1},
        after={"id": 2, "v": 1},
        schema=NARROW,
        position=at(1, 1),
    )
    reports = lake_tables.land(spark, lake, [[row(at(0, 5), id=1, v=1)], [moved]])
    assert reports[1].quarantined == {"unordered": 1}
    assert rows(spark, lake) == [(1, 1)]


def test_a_new_epoch_lifts_what_two_partitions_told(spark: SparkSession, lake: str) -> None:
    lake_tables.apply(spark, lake, [row(at(0, 5), id=1, v=1), row(at(1, 5), id=2, v=1)])
    told = lake_tables.messages(spark, [row(at(1, 1), id=1, v=2), row(at(0, 1), id=2, v=2)])
    events = lake_tables.decode(told, "native-json", epoch=1)
    applier = lake_tables.Applier(spark, lake, table_format=Path(lake).name)
    report = applier.apply(events, lake_tables.Marker("test", "next", 0))
    assert report.quarantined == {}
    assert rows(spark, lake) == [(1, 2), (2, 2)]


def test_a_truncate_of_one_of_several_partitions_is_set_aside(
    spark: SparkSession, lake: str
) -> None:
    batch = [row(at(0, 5), id=1, v=1), row(at(1, 3), id=2, v=2)]
    gone = [Truncate(TABLE, position=at(1, 4)), row(at(1, 5), id=2, v=3)]
    reports = lake_tables.land(spark, lake, [batch, gone])
    assert reports[1].quarantined == {"unordered": 1}
    assert rows(spark, lake) == [(1, 1), (2, 3)]


def test_rows_of_one_partition_cannot_be_compared_with_a_truncate_of_another(
    spark: SparkSession, lake: str
) -> None:
    one = [row(at(0, 5), id=1, v=1), Truncate(TABLE, position=at(0, 6)), row(at(0, 7), id=2, v=2)]
    reports = lake_tables.land(
        spark, lake, [one, [row(at(1, 9), id=3, v=3), row(at(0, 8), id=4, v=4)]]
    )
    assert reports[1].quarantined == {"unordered": 1}
    assert rows(spark, lake) == [(2, 2), (4, 4)]


def test_a_wider_type_widens_the_column(spark: SparkSession, both: str) -> None:
    big = 1 << 40
    batches = [
        [row(SequencePosition(1), id=1, v=1)],
        [
            row(SequencePosition(2), told=WIDE, id=2, v=big),
            row(SequencePosition(3), id=3, v=3),
        ],
    ]
    reports = lake_tables.land(spark, both, batches)
    assert reports[1].quarantined == {}
    assert rows(spark, both) == [(1, 1), (2, big), (3, 3)]


@pytest.mark.parametrize(
    ("wider", "where"), [(Decimal(12, 2), {"delta", "iceberg"}), (Decimal(12, 4), {"delta"})]
)
def test_decimals_widen_where_the_format_can_without_a_changed_value(
    spark: SparkSession, both: str, wider: Decimal, where: set[str]
) -> None:
    """Iceberg's decimals grow in front of the point only."""
    small, large = schema(id=Integer(), v=Decimal(6, 2)), schema(id=Integer(), v=wider)
    one, two = decimal.Decimal("1234.56"), decimal.Decimal("12345678.12")
    batches = [
        [row(SequencePosition(1), told=small, id=1, v=one)],
        [row(SequencePosition(2), told=large, id=2, v=two)],
    ]
    reports = lake_tables.land(spark, both, batches)
    widened = Path(both).name in where
    assert reports[1].quarantined == ({} if widened else {"schema_mismatch": 1})
    assert widened or "`cast` the column" in reports[1].tables[0].note
    assert rows(spark, both) == ([(1, one), (2, two)] if widened else [(1, one)])


def test_a_schema_that_does_not_fit_is_set_aside_and_no_other(
    spark: SparkSession, lake: str
) -> None:
    text = schema(id=Integer(), v=String())
    batches = [
        [row(SequencePosition(1), id=1, v=1)],
        [
            row(SequencePosition(2), id=2, v=2),
            row(SequencePosition(3), told=text, id=3, v="three"),
            row(SequencePosition(4), op="d", id=1, v=1),
        ],
    ]
    reports = lake_tables.land(spark, lake, batches)
    assert reports[1].quarantined == {"schema_mismatch": 1}
    assert "'v' is int" in notes(reports[1])
    assert rows(spark, lake) == [(2, 2)]


def test_a_table_gets_a_column_of_every_type(spark: SparkSession, both: str) -> None:
    values = {
        "at": (Timestamp(6), dt.datetime(2026, 2, 28, 23, 59, 59, 123456)),
        "on": (Date(), dt.date(2026, 2, 28)),
        "many": (Array(Timestamp(6)), [dt.datetime(2026, 3, 1)]),
        "amount": (Decimal(10, 2), decimal.Decimal("1.50")),
        "raw": (Bytes(), b"\x00"),
        "is_old": (Boolean(), True),
    }
    types = {name: told for name, (told, _) in values.items()}
    later = schema(id=Integer(), v=Integer(32), **types)
    image = {name: value for name, (_, value) in values.items()}
    batches = [[row(at(0, 1), id=1, v=1)], [row(at(0, 2), told=later, id=2, v=2, **image)]]
    assert [one.quarantined for one in lake_tables.land(spark, both, batches)] == [{}, {}]
    found = rows(spark, both, "id", *values)
    assert found == [(1, *[None] * len(values)), (2, *image.values())]


def test_an_older_event_of_a_schema_with_fewer_columns_fits(spark: SparkSession, lake: str) -> None:
    more = schema(id=Integer(), v=Integer(32), w=String())
    batch = [
        row(SequencePosition(5), told=more, id=1, v=1, w="x"),
        row(SequencePosition(3), id=2, v=2),
    ]
    assert lake_tables.apply(spark, lake, batch).quarantined == {}
    assert rows(spark, lake, "id", "v", "w") == [(1, 1, "x"), (2, 2, None)]


def test_events_of_a_second_server_are_set_aside(spark: SparkSession, lake: str) -> None:
    batches = [
        [of("one", row(SequencePosition(1), id=1, v=1))],
        [
            of("two", row(SequencePosition(9), id=1, v=9)),
            of("one", row(SequencePosition(2), id=2, v=2)),
        ],
    ]
    reports = lake_tables.land(spark, lake, batches)
    assert reports[1].quarantined == {"source_conflict": 1}
    assert "source_servers: multiple" in notes(reports[1])
    assert rows(spark, lake) == [(1, 1), (2, 2)]


def test_two_servers_of_one_batch_are_told_apart(spark: SparkSession, lake: str) -> None:
    batch = [
        of("one", row(SequencePosition(1), id=1, v=1)),
        of("two", row(SequencePosition(2), id=1, v=2)),
    ]
    assert lake_tables.apply(spark, lake, batch).quarantined == {"source_conflict": 1}


def test_many_servers_may_feed_a_table_on_request(spark: SparkSession, lake: str) -> None:
    batch = [
        of("one", row(SequencePosition(1), id=1, v=1)),
        of("two", row(SequencePosition(1), id=2, v=2)),
    ]
    report = lake_tables.apply(spark, lake, batch, source_servers="multiple")
    assert report.quarantined == {}
    assert rows(spark, lake) == [(1, 1), (2, 2)]


def test_what_one_of_many_servers_says_of_all_rows_is_not_done_to_those_of_the_others(
    spark: SparkSession, lake: str
) -> None:
    truncate = of("one", Truncate(TABLE, position=SequencePosition(5)))
    drop = SchemaChange(TABLE, "drop", "DROP TABLE orders", position=SequencePosition(6))
    drop = msgspec.structs.replace(drop, source=Source(server="one", product="mysql"))
    batches = [
        [truncate],
        [
            of("one", row(SequencePosition(1), id=1, v=1)),
            of("two", row(SequencePosition(1), id=2, v=2)),
        ],
        [truncate, drop, of("two", row(SequencePosition(3), id=3, v=3))],
        [of("one", row(SequencePosition(7), id=4, v=4))],
    ]
    reports = [
        lake_tables.apply(spark, lake, batch, batch=number, source_servers="multiple")
        for number, batch in enumerate(batches)
    ]
    assert [report.quarantined for report in reports] == [
        {"source_conflict": 1},
        {},
        {"source_conflict": 2},
        {},
    ]
    assert rows(spark, lake) == [(1, 1), (2, 2), (3, 3), (4, 4)]


def says(at: int, ddl: str, server: str = "one") -> SchemaChange:
    source = Source(server=server, product="mysql")
    return SchemaChange(TABLE, "alter", ddl, position=SequencePosition(at), source=source)


def test_statements_that_take_nothing_from_anybody_are_not_set_aside_with_many_servers(
    spark: SparkSession, lake: str
) -> None:
    batch = [
        says(1, "CREATE TABLE orders (id INT PRIMARY KEY, v INT)"),
        of("one", row(SequencePosition(2), id=1, v=1)),
        says(3, "ALTER TABLE orders ADD COLUMN w INT NULL"),
    ]
    assert lake_tables.apply(spark, lake, batch, source_servers="multiple").quarantined == {}
    told = [says(4, "ALTER TABLE orders ADD COLUMN x INT NOT NULL DEFAULT 7")]
    report = lake_tables.apply(spark, lake, told, batch=1, source_servers="multiple")
    assert report.quarantined == {"source_conflict": 1}


@pytest.mark.parametrize("mode", ["upsert", "history"])
def test_what_was_said_of_one_server_takes_no_row_of_others_that_come_later(
    spark: SparkSession, lake: str, mode: Any
) -> None:
    modes = Modes(TableMode(mode))
    first = [
        of("one", row(SequencePosition(1), id=1, v=1)),
        of("one", Truncate(TABLE, position=SequencePosition(5))),
        of("one", row(SequencePosition(6), id=6, v=6)),
    ]
    assert lake_tables.apply(spark, lake, first, modes=modes).quarantined == {}
    later = [
        of("two", row(SequencePosition(3), id=3, v=3)),
        of("two", row(SequencePosition(7), id=7, v=7)),
    ]
    report = lake_tables.apply(spark, lake, later, batch=1, source_servers="multiple", modes=modes)
    assert report.quarantined == {"source_conflict": 1}
    table = lake_tables.table_of(spark, lake, TABLE)
    current = table.where("_is_current") if mode == "history" else table
    assert sorted(tuple(one) for one in current.select("id", "v").collect()) == [(6, 6), (7, 7)]


def test_a_table_that_one_server_dropped_keeps_the_rows_of_others_that_come_later(
    spark: SparkSession, lake: str
) -> None:
    first = [of("one", row(SequencePosition(1), id=1, v=1)), says(5, "DROP TABLE orders")]
    assert lake_tables.apply(spark, lake, first).quarantined == {}
    for batch, at in enumerate((3, 7, 4), 1):
        told = [of("two", row(SequencePosition(at), id=at, v=at))]
        assert (
            lake_tables.apply(spark, lake, told, batch=batch, source_servers="multiple").quarantined
            == {}
        )
    assert rows(spark, lake) == [(1, 1), (3, 3), (4, 4), (7, 7)]


def test_a_truncate_of_a_second_server_is_set_aside(spark: SparkSession, lake: str) -> None:
    def truncate(server: str, at: int) -> Any:
        return of(server, Truncate(TABLE, position=SequencePosition(at)))

    batches = [
        [of("one", row(SequencePosition(1), id=1, v=1)), truncate("two", 5)],
        [truncate("two", 6)],
        [truncate("two", 7), of("one", row(SequencePosition(2), id=2, v=2))],
    ]
    reports = lake_tables.land(spark, lake, batches)
    assert [report.quarantined for report in reports] == [{"source_conflict": 1}] * 3
    assert rows(spark, lake) == [(1, 1), (2, 2)]
    assert lake_tables.apply(spark, lake, [truncate("one", 9)], batch=3).quarantined == {}
    assert rows(spark, lake) == []


def test_a_statement_of_a_second_server_is_set_aside(spark: SparkSession, lake: str) -> None:
    """It would delete the rows, or rename a column of them."""
    statements = (
        "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
        "ALTER TABLE orders RENAME COLUMN v TO w",
        "RENAME TABLE orders TO others",
        "DROP DATABASE shop",
    )
    batches = [
        [of("one", row(SequencePosition(1), id=1, v=1)), says(49, statements[0], "two")],
        [
            *(says(number, text, "two") for number, text in enumerate(statements, 50)),
            of("one", row(SequencePosition(2), id=2, v=2)),
        ],
        [of("one", row(SequencePosition(99), id=3, v=3)), says(100, "DROP DATABASE shop")],
    ]
    reports = lake_tables.land(spark, lake, batches)
    rejected = [report.quarantined for report in reports]
    assert rejected == [{"source_conflict": 1}, {"source_conflict": 4}, {}]
    assert rows(spark, lake) == [(1, 1), (2, 2), (3, 3)]
    lake_tables.apply(spark, lake, [of("one", row(SequencePosition(101), id=4, v=4))], batch=3)
    assert rows(spark, lake) == [(4, 4)]


def test_a_key_of_unsigned_integers_is_not_one_of_decimals(spark: SparkSession, lake: str) -> None:
    """Both have one type in Spark: a row with one of each would be there twice."""
    unsigned, decimals = (
        schema(id=Integer(64, unsigned=True), v=Integer(32)),
        schema(id=Decimal(20, 0), v=Integer(32)),
    )
    batches = [
        [
            row(SequencePosition(1), told=unsigned, id=1, v=1),
            row(SequencePosition(2), told=decimals, id=decimal.Decimal(1), v=2),
        ],
        [row(SequencePosition(3), told=unsigned, id=1, v=3)],
    ]
    reports = lake_tables.land(spark, lake, batches)
    assert [report.quarantined for report in reports] == [{"schema_mismatch": 1}] * 2
    assert rows(spark, lake) == [(1, 2)]


def made_elsewhere(spark: SparkSession, theirs: Any) -> None:
    """Make a table where changelane would have one."""
    if isinstance(theirs, Hudi):
        told = {"hoodie.table.name": "orders", "hoodie.datasource.write.recordkey.field": "id"}
        empty = spark.createDataFrame([], "id BIGINT").write.format("hudi")
        empty.options(**told).mode("append").save(theirs.path("tables/shop.orders"))
        return
    name = Path(theirs.path("")).name
    spark.sql(f"CREATE TABLE {theirs.sql('tables/shop.orders')} (id BIGINT) USING {name}")


def test_a_table_that_somebody_else_made_is_left_alone(spark: SparkSession, both: str) -> None:
    theirs = open_lake(spark, both, Path(both).name)
    made_elsewhere(spark, theirs)
    report = lake_tables.apply(spark, both, [row(SequencePosition(1), id=1, v=1)])
    assert report.quarantined == {"foreign_table": 1}
    assert "changelane did not create" in notes(report)
    assert theirs.columns("tables/shop.orders") == {"id": "bigint"}


def test_a_table_takes_no_rows_of_another_source_table(spark: SparkSession, both: str) -> None:
    lake_tables.apply(spark, both, [row(SequencePosition(1), id=1, v=1)])
    lake = open_lake(spark, both, Path(both).name)
    lake.set_properties("tables/shop.orders", {"table": '["shop",null,"Orders"]'})
    report = lake_tables.apply(spark, both, [row(SequencePosition(2), id=1, v=2)], batch=1)
    assert report.quarantined == {"foreign_table": 1}
    assert "shop.Orders" in notes(report)
    assert rows(spark, both) == [(1, 1)]


def test_a_column_that_one_of_many_servers_adds_is_unknown_in_the_rows_of_the_others(
    spark: SparkSession, lake: str
) -> None:
    wider = TableSchema((*NARROW.columns, Column("w", Integer(32), nullable=False)))
    batches = [
        [
            of("one", row(SequencePosition(10), id=1, v=1)),
            of("two", row(SequencePosition(20), id=2, v=2)),
        ],
        [of("one", row(SequencePosition(12), told=wider, id=3, v=3, w=3))],
        [
            of("two", row(SequencePosition(25), id=4, v=4)),
            of("two", row(SequencePosition(30), told=wider, id=5, v=5, w=5)),
        ],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, source_servers="multiple")
    found = lake_tables.read(spark, lake, TABLE, ("id",))
    assert {row["id"]: row["w"] for row in found.rows.values()} == {
        1: None, 2: None, 3: 3, 4: None, 5: 5
    }  # fmt: skip
    assert sorted(found.unknown) == [b"[1]", b"[2]", b"[4]"]


def test_a_key_that_another_case_spells_is_the_same_key(spark: SparkSession, lake: str) -> None:
    upper = schema(ID=Integer(), v=Integer(32))

    def spelled(at: int, op: str = "c", **image: Any) -> Any:
        event = row(SequencePosition(at), op=op, told=upper, **image)
        return msgspec.structs.replace(event, key=Key(("ID",)))

    batches = [
        [row(SequencePosition(1), id=1, v=1), row(SequencePosition(2), id=2, v=2)],
        [spelled(3, "u", ID=1, v=10), spelled(4, ID=3, v=3), spelled(5, "d", ID=2)],
        [spelled(6, ID=4, v=4), row(SequencePosition(7), op="u", id=3, v=30)],
    ]
    assert [report.quarantined for report in lake_tables.land(spark, lake, batches)] == [{}] * 3
    assert rows(spark, lake) == [(1, 10), (3, 30), (4, 4)]
