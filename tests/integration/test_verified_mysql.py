# SPDX-License-Identifier: Apache-2.0
"""The source's side of a verification on a real MariaDB: types, keys, chunks and hashes."""

import contextlib
import datetime as dt
import decimal
import random
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from mariadb_server import MariadbServer

from changelane.capture.mysql.captured_mysql import CapturedMysql
from changelane.capture.mysql.connection import MysqlConnection, connect, read_rows
from changelane.capture.mysql.position import (
    BinlogPosition,
    begin_locked_snapshot,
    current_position,
)
from changelane.capture.mysql.tables import read_all_tables
from changelane.pipeline.mysql_source import MariadbSource
from changelane.spark.verify.canonical_text import key_field, values_of
from changelane.spark.verify.mysql_database import MysqlDatabase, open_mysql
from changelane.spark.verify.mysql_rows import MysqlRows
from changelane.spark.verify.mysql_types import MysqlType
from changelane.spark.verify.source_database import VerifiedTable
from changelane.spark.verify.table_plan import ComparedColumn, RangeColumn, TablePlan, chunk_of

TABLE: Final = """
CREATE TABLE `t %s{}` (
  `a``%` varchar(9) CHARACTER SET latin1, b char(4) COLLATE utf8mb4_general_ci,
  n bigint unsigned ZEROFILL, v text, PRIMARY KEY (b, `a``%`, n))
"""


class Shop(NamedTuple):
    """A database of a server, as a source."""

    source: MariadbSource
    server: MariadbServer

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*statements, database=self.source.database)


@pytest.fixture
def shop(mariadb_server: MariadbServer) -> Iterator[Shop]:
    with mariadb_server.new_database("verify") as database:
        source = MariadbSource(
            **mariadb_server.login,
            database=database,
            tables=[f"{database}.*"],
            segments="capture",
        )
        yield Shop(source, mariadb_server)


def plan(types: dict[str, MysqlType], lake_types: dict[str, str], key: list[str]) -> TablePlan:
    columns = {}
    for name, lake in lake_types.items():
        text = types[name].text(lake)
        assert text is not None, name
        columns[name] = ComparedColumn(
            name=name,
            lake_name=name,
            lake_type=lake,
            text=text,
            key_text=types[name].key_text(lake),
            key_cast=types[name].key_cast,
        )
    ranges = [
        RangeColumn(columns[name], texts)
        for name in key
        if (texts := types[name].range_texts(lake_types[name]))
    ]
    return TablePlan(
        key_columns=tuple(columns[name] for name in key),
        columns=tuple(columns.values()),
        ranges=tuple(ranges),
        unproven_columns={},
    )


def only_table(database: MysqlDatabase) -> VerifiedTable:
    (table,) = database.tables()
    return table


@pytest.mark.parametrize(
    ("kind", "lake", "literal", "value"),
    [
        ("bigint", "bigint", "-7", -7),
        ("int(6) unsigned zerofill", "bigint", "42", 42),
        ("bigint unsigned", "decimal(38,0)", str((1 << 64) - 1), decimal.Decimal((1 << 64) - 1)),
        ("decimal(10,2)", "decimal(12,3)", "-1.5", decimal.Decimal("-1.5")),
        ("decimal(10,10)", "decimal(10,10)", "0.0000000001", decimal.Decimal("1E-10")),
        ("varchar(20) character set latin1", "string", "'a:1 üé '", "a:1 üé "),
        ("varchar(20)", "string", "'a:1 ü😀'", "a:1 ü😀"),
        ("char(6)", "string", "'ab  '", "ab"),
        ("enum('x','y y')", "string", "'y y'", "y y"),
        ("varbinary(4)", "binary", "X'00ff'", b"\x00\xff"),
        ("date", "date", "'0044-03-15'", dt.date(44, 3, 15)),
        ("datetime(6)", "timestamp_ntz", "'1582-10-10 10:00:00.000001'", None),
        ("datetime", "timestamp_ntz", "'9999-12-31 23:59:59'", None),
        ("timestamp(6)", "timestamp", "'2024-02-29 23:59:59.999999'", None),
        ("uuid", "string", "'6F9619FF-8B86-D011-B42D-00CF4FC964FF'", None),
        ("year", "int", "2024", 2024),
    ],
)
def test_keys_of_tombstones_have_the_fields_of_the_source(
    shop: Shop, kind: str, lake: str, literal: str, value: Any
) -> None:
    shop.run(
        f"CREATE TABLE t (k {kind}, PRIMARY KEY (k))",
        f"INSERT INTO t VALUES ({literal})",
    )
    with open_mysql(shop.source) as database, database.open_snapshot(only_table(database)):
        table = only_table(database)
        columns_plan = plan(dict(database.column_types(table)), {"k": lake}, ["k"])
        rows = database.rows(table, columns_plan)
        ((key, _),) = rows.hashes(0, frozenset()).items()
        assert rows.fields(frozenset([key])).keys() == {key}
        if value is None:
            ((value,),) = shop.run("SELECT k FROM t")
            value = str(value) if kind == "uuid" else value
    key_text = columns_plan.key_columns[0].key_text
    assert key_text is not None
    assert key_field(key_text(value)) == key


@pytest.mark.parametrize(
    ("kind", "lake", "literal", "text"),
    [
        ("decimal(65,30)", "string", "'0.000000000000000000000000000012'", "1.2E-29"),
        ("decimal(65,30)", "string", "'-1.5'", "-1.500000000000000000000000000000"),
        ("decimal(65,30)", "string", "0", "0E-30"),
        ("decimal(40,7)", "string", "'-0.0000005'", "-5E-7"),
        ("decimal(40,6)", "string", "'0.000001'", "0.000001"),
        ("bit(10)", "string", "5", "0000000101"),
        ("bit(1)", "boolean", "1", "true"),
        ("time(3)", "string", "'-838:59:59.5'", "-838:59:59.500000"),
        ("time", "string", "'00:00:01'", "00:00:01.000000"),
        ("binary(3)", "binary", "'a'", "610000"),
        ("set('a','b c')", "string", "'b c,a'", "a,b c"),
        ("date", "date", "'0000-00-00'", "0000-00-00"),
        ("datetime(3)", "timestamp_ntz", "'0000-00-00'", "0000-00-00 00:00:00.000"),
        ("timestamp", "timestamp", "0", "0000-00-00 00:00:00"),
        ("year", "int", "0", "0"),
        ("json", "string", """'{"a" : 1.0,  "a": 2}'""", '{"a" : 1.0,  "a": 2}'),
        ("text character set ucs2", "string", "'ü 😀'", None),
    ],
)
def test_values_have_their_canonical_texts(
    shop: Shop, kind: str, lake: str, literal: str, text: str | None
) -> None:
    shop.run(
        "SET sql_mode = ''",
        f"CREATE TABLE t (id int PRIMARY KEY, v {kind})",
        f"INSERT INTO t VALUES (1, {literal}), (2, NULL)",
    )
    with open_mysql(shop.source) as database, database.open_snapshot(only_table(database)):
        table = only_table(database)
        # the key of a row is the list of its fields
        types = dict(database.column_types(table))
        rows = database.rows(table, plan(types, {"id": "int", "v": lake}, ["id", "v"]))
        values = sorted(map(values_of, rows.hashes(0, frozenset())))
    expected = shop.run("SELECT v FROM t")[0][0]
    if text is None:
        text = expected
    is_null = kind == "timestamp" and values[1][1] is not None  # it is NOT NULL by itself
    assert values[0] == ["1", text]
    assert is_null or values[1] == ["2", None]


def test_numbers_have_the_bits_of_ieee_754(shop: Shop) -> None:
    choose = random.Random(4)
    doubles = [struct.unpack(">d", choose.randbytes(8))[0] for _ in range(3000)]
    edges = [1.7976931348623157e308, 2.2250738585072014e-308, 5e-324, 2.225073858507201e-308]
    edges += [0.0, 0.1, 2.0**-1021 * (1 - 2.0**-53), 3.4028234663852886e38, 1e-40, 1.1]
    edges += [2.0**power * factor for power in range(-1020, 1020, 7) for factor in (1, -1.5)]
    edges += [2.0**power * (1 - 2.0**-53) for power in range(-1020, 1020)]
    numbers = [n for n in [*doubles, *edges] if n - n == 0]
    floats = [struct.unpack(">f", choose.randbytes(4))[0] for _ in range(3000)]
    floats = [n for n in [*floats, *(2.0**p for p in range(-149, 128)), 1.1] if n - n == 0]
    with shop.server.connect(shop.source.database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id int PRIMARY KEY, d double, f float)")
        for start in range(0, len(numbers), 1000):
            values = ", ".join(
                f"({start + index}, {number!r}, NULL)"
                for index, number in enumerate(numbers[start : start + 1000])
            )
            cursor.execute(f"INSERT INTO t VALUES {values}")
        for start in range(0, len(floats), 1000):
            values = ", ".join(
                f"({100_000 + start + index}, NULL, {number!r})"
                for index, number in enumerate(floats[start : start + 1000])
            )
            cursor.execute(f"INSERT INTO t VALUES {values}")
        # the only way to store -0.0: a `float` without the digits of the number
        cursor.execute("INSERT INTO t VALUES (-1, NULL, -1e-300)")
    with open_mysql(shop.source) as database, database.open_snapshot(only_table(database)):
        table = only_table(database)
        types = dict(database.column_types(table))
        rows = MysqlRows(
            database.rows(table, plan(types, {"id": "int"}, ["id"])).connection,
            table.relation,
            plan(types, {"id": "int", "d": "double", "f": "float"}, ["id", "d", "f"]),
        )
        found = {row[0]: row[1:] for row in map(values_of, rows.hashes(0, frozenset()))}
    assert found["-1"] == [None, str(-(1 << 31))]
    for index, number in enumerate(numbers):
        bits = struct.unpack(">q", struct.pack(">d", number))[0]
        assert found[str(index)] == [str(bits), None], number
    for index, number in enumerate(floats):
        bits = struct.unpack(">i", struct.pack(">f", number))[0]
        assert found[str(100_000 + index)] == [None, str(bits)], number


def test_chunks_and_rows_of_keys_with_any_collation(shop: Shop) -> None:
    shop.run(
        TABLE,
        "INSERT INTO `t %s{}` SELECT CHAR(65 + seq % 2 * 32), CHAR(90 + seq % 20 USING utf8mb4), "
        "seq, 'x' FROM seq_1_to_100",
    )
    lake_types = {"a`%": "string", "b": "string", "n": "decimal(38,0)", "v": "string"}
    with open_mysql(shop.source) as database, database.open_snapshot(only_table(database)):
        table = only_table(database)
        assert table.primary_key == ("b", "a`%", "n")
        columns_plan = plan(dict(database.column_types(table)), lake_types, list(table.primary_key))
        bounds = database.rows(table, columns_plan).chunk_bounds(30)
        assert len(bounds) == 3
        rows = database.rows(table, columns_plan, bounds)
        left_out = frozenset({"1:Z1:A2:40", "1:z1:A2:40"})  # the second one has no row
        all_sums, sums = rows.sums(frozenset()), rows.sums(left_out)
        assert sorted(s.count + s.left_out_count for s in sums.values()) == [10, 30, 30, 30]
        assert sum(s.count for s in sums.values()) == 99
        keys: set[str] = set()
        for chunk, chunk_sums in all_sums.items():
            hashes = rows.hashes(chunk, frozenset())
            halves = [int(h[:16], 16) for (h,) in hashes.values()]
            assert chunk_sums.first == sum(halves) % (1 << 64)
            if left := hashes.keys() & left_out:
                (key,) = left
                (row_hash,) = hashes[key]
                without = (chunk_sums.first - int(row_hash[:16], 16)) % (1 << 64)
                assert sums[chunk].first == without
            keys |= hashes.keys()
            assert {chunk_of(key, columns_plan, bounds) for key in hashes} == {chunk}
            assert rows.sums(left_out, chunk) == {chunk: sums[chunk]}
        assert len(keys) == 100
        some_keys = frozenset(sorted(keys)[:3])
        absent = {"1:x1:y1:1", "1:😀1:😀1:1", "1:a1:a30:" + "9" * 30}
        assert rows.fields(some_keys | absent).keys() == some_keys


@pytest.mark.parametrize(
    ("statement", "is_intact"),
    [
        ("UPDATE t SET v = 2", True),
        ("TRUNCATE t", False),
        ("ALTER TABLE t MODIFY v bigint", False),
        ("DROP TABLE t", False),
        ("RENAME TABLE t TO u", False),
        ("CREATE OR REPLACE TABLE t (id int PRIMARY KEY, v int)", False),
    ],
)
def test_a_snapshot_is_not_intact_after_statements_that_hide_its_rows(
    shop: Shop, statement: str, is_intact: bool
) -> None:
    shop.run("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    with open_mysql(shop.source) as database:
        table = only_table(database)
        with database.open_snapshot(table) as snapshot:
            shop.run(statement)
            assert snapshot.is_intact() is is_intact


def test_the_last_statement_of_a_log_has_been_read_when_the_offset_counts_its_events(
    shop: Shop,
) -> None:
    """No event follows it, so that the engine reports no later position."""
    login = MysqlConnection(
        host=shop.source.host,
        port=shop.source.port,
        user=shop.source.user,
        password=shop.source.password,
    )
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")

    def end() -> BinlogPosition:
        with contextlib.closing(connect(login)) as connection:
            return current_position(connection)

    def offset(position: BinlogPosition, **more: int) -> dict[str, str | int | bool | None]:
        return {"file": position.file, "pos": position.offset, "gtids": position.gtid, **more}

    first = end()
    shop.run("ALTER TABLE t ADD v text")
    second = end()
    is_passed = CapturedMysql(shop.source).marker()
    assert not is_passed(offset(first)), "nothing shows that the statement has been read"
    assert is_passed(offset(first, event=1))
    assert is_passed(offset(second))
    shop.run("TRUNCATE t")
    is_passed = CapturedMysql(shop.source).marker()
    assert not is_passed(offset(first, event=1)), "another statement follows"
    assert is_passed(offset(second, event=1))
    third = end()
    shop.run("INSERT INTO t VALUES (1, 'x')")
    is_passed = CapturedMysql(shop.source).marker()
    assert not is_passed(offset(second, event=1))
    assert not is_passed(offset(third, event=1)), "rows follow"


def test_a_repair_waits_for_xa_transactions_whose_changes_the_log_has_already(shop: Shop) -> None:
    """Its rows would lack them at a newer position: after the commit, the lake would lose them."""
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    with (
        shop.server.connect(shop.source.database) as session,
        session.cursor() as cursor,
        open_mysql(shop.source) as database,
    ):
        table = only_table(database)
        with database.open_snapshot(table) as snapshot:
            assert snapshot.writers() == frozenset()
        for statement in ("XA START 'a'", "INSERT INTO t VALUES (1)", "XA END 'a'"):
            cursor.execute(statement)
        with database.open_snapshot(table) as snapshot:
            cursor.execute("XA PREPARE 'a'")  # above the position
            assert snapshot.writers() == frozenset()
        with database.open_snapshot(table) as snapshot:
            writers = snapshot.writers()
            assert len(writers) == 1
            assert database.is_any_open(writers)
            cursor.execute("XA COMMIT 'a'")
            assert snapshot.writers() == writers
            assert not database.is_any_open(writers)
        with database.open_snapshot(table) as snapshot:
            assert snapshot.writers() == frozenset()


def test_a_snapshot_under_a_lock_has_an_exact_position(shop: Shop) -> None:
    """The way of servers that are not MariaDB: each row has the end of the log before it."""
    source = shop.source
    name = source.database
    shop.run("CREATE TABLE t (id int PRIMARY KEY)")
    stop = threading.Event()
    login = MysqlConnection(
        host=source.host, port=source.port, user=source.user, password=source.password
    )
    ends: dict[int, BinlogPosition] = {}

    def insert() -> None:
        with contextlib.closing(connect(login)) as connection:
            number = 0
            while not stop.is_set():
                number += 1
                read_rows(connection, f"INSERT INTO `{name}`.t VALUES ({number})")
                status = read_rows(connection, "SHOW MASTER STATUS")[0]
                ends[number] = BinlogPosition(status[0], int(status[1]))

    worker = threading.Thread(target=insert)
    worker.start()
    snapshots = []
    try:
        with contextlib.closing(connect(login)) as connection:
            for number in range(20):
                while len(ends) <= number and worker.is_alive():
                    time.sleep(0.001)  # the lock would keep the other session from its rows
                position = begin_locked_snapshot(connection)
                ((count,),) = read_rows(connection, f"SELECT COUNT(*) FROM `{name}`.t")
                snapshots.append((position, count))
                connection.rollback()
            assert read_all_tables(connection)
    finally:
        stop.set()
        worker.join()
    assert snapshots[-1][1] > snapshots[0][1]
    for position, count in snapshots:
        assert count == 0 or position.order == ends[count].order
