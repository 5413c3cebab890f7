# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a real MariaDB by several readers: every row once, as the stream has it."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from hanging_commits import mariadb_commit
from mariadb_server import MariadbServer
from snapshot_records import (
    changing,
    read_in_processes,
    records_of,
    rows_by_topic,
    values_by_column,
)

from changelane.capture.database_capture import DatabaseCapture
from changelane.capture.engine import CaptureError
from changelane.capture.manifest import CapturedRecord
from changelane.capture.mysql.connection import MysqlConnection, connect
from changelane.capture.mysql.snapshot_tables import chunk_query, chunks_of, snapshot_tables
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.first_load import ReadChunks
from changelane.capture.snapshot.plan import SnapshotProgress
from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
from changelane.capture.storage import LocalFolder
from changelane.pipeline.mysql_source import MariadbSource
from changelane.schema import TableId

TYPES: Final = {
    "TINYINT": ("-128", "127"),
    "TINYINT UNSIGNED": ("255", "0"),
    "SMALLINT UNSIGNED": ("65535",),
    "MEDIUMINT": ("-8388608",),
    "MEDIUMINT UNSIGNED": ("16777215",),
    "INT": ("-2147483648", "2147483647"),
    "INT UNSIGNED": ("4294967295",),
    "INT(6) ZEROFILL": ("42",),
    "BIGINT": ("-9223372036854775808",),
    "BIGINT UNSIGNED": ("18446744073709551615", "9223372036854775808", "1"),
    "BOOLEAN": ("1",),
    "FLOAT": ("3.4028235e38", "0.1", "16777217", "-1.17549435e-38", "123456.789"),
    "FLOAT(9,4)": ("12345.6789", "-0.0001"),
    "DOUBLE": ("0.1", "1.7976931348623157e308", "-0e0", "12345678901234567"),
    "DOUBLE(12,3)": ("123456.789",),
    "DECIMAL(38,10)": ("-1234567890123456789012345678.0123456789", "0"),
    "DECIMAL(5,2) UNSIGNED": ("999.99",),
    "DECIMAL(10)": ("7",),
    "BIT(1)": ("b'1'", "b'0'"),
    "BIT(10)": ("b'1000000001'", "b'10'"),
    "BIT(64)": ("b'1000000000000000000000000000000000000000000000000000000000000001'", "b'1'"),
    "DATE": ("'2024-02-29'", "'0000-00-00'", "'2024-00-10'", "'9999-12-31'", "'0050-02-03'"),
    "DATE NOT NULL": ("'0000-00-00'", "'1582-10-10'", "'0001-01-01'"),
    "DATETIME": ("'2024-02-29 12:34:56'", "'0000-00-00'", "'1000-01-01 00:00:00'"),
    "DATETIME(3)": ("'1969-12-31 23:59:59.999'", "'0099-01-01 00:00:00.001'"),
    "DATETIME(6)": ("'9999-12-31 23:59:59.999999'", "'2024-00-01 00:00:00'"),
    "TIMESTAMP NULL": ("'2024-10-27 01:30:00'", "'1970-01-01 00:00:01'", "0"),
    "TIMESTAMP(6) NULL": ("'2038-01-19 03:14:07.999999'", "'2024-03-31 01:00:00.1'"),
    "TIME": ("'838:59:59'", "'-838:59:59'", "'-00:00:01'"),
    "TIME(6)": ("'-00:00:00.5'", "'23:59:59.999999'", "'-838:59:58.000001'", "'24:00:00.1'"),
    "YEAR": ("2024", "1901", "0", "2155"),
    "CHAR(5)": ("'ab'", "'a€  '"),
    "VARCHAR(50)": ("'a\tb\n\\'q\\' \\\\ \U0001f600'", "''", "'trailing  '"),
    "VARCHAR(20) CHARACTER SET latin1": ("'\xe4\u20ac'", "_latin1 x'8190'"),
    "VARCHAR(20) CHARACTER SET utf16": ("'\xe4\U0001f600'",),
    "VARCHAR(20) CHARACTER SET cp1251": ("'\u0436'",),
    "VARCHAR(20) CHARACTER SET sjis": ("'\u8868'",),
    "TEXT": ("'long'",),
    "LONGTEXT CHARACTER SET latin1": ("repeat('\xe4', 70000)",),
    "BINARY(4)": ("x'00ff'", "x'0100000000'"),
    "VARBINARY(8)": ("x'00ff00'", "''"),
    "BLOB": ("x'fffe0022'",),
    "MEDIUMBLOB": ("repeat('x', 70000)",),
    "ENUM('sad','it''s','€','a,b')": ("'sad'", "'it''s'", "'€'", "''", "'a,b'"),
    "SET('a','b','c d','€')": ("'a,c d'", "''", "'€'"),
    f"SET({','.join(repr(f'm{n}') for n in range(64))})": ("'m0,m53,m63'", "'m62'"),
    "JSON": ("'{\"a\" : [1, 2.50, null]}'", "'\"€\"'"),
    "POINT": ("ST_GeomFromText('POINT(1.5 -2)', 4326)", "POINT(0, 0)"),
    "GEOMETRY": ("ST_GeomFromText('LINESTRING(0 0, 1 1)')",),
    "POLYGON": ("ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))')",),
    "GEOMETRYCOLLECTION": ("ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')",),
    "UUID": ("'863aa675-ab57-437c-b83e-cd88633aeb12'", "'863aa675-ab57-1000-8000-cd88633aeb12'"),
    "INT DEFAULT 7": ("NULL",),
    "VARCHAR(9) DEFAULT 'x'": ("NULL",),
}
"""Values of each type; a NULL is added to each that permits it."""


class Source:
    """A database, and captures of it."""

    def __init__(self, server: MariadbServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.connection = server.connect(database, charset="utf8mb4")
        self.notes: list[str] = []

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def options(self, name: str, **options: Any) -> MariadbSource:
        return MariadbSource(
            **self.server.login,
            database=self.database,
            sslmode="disable",
            tables=[f"{self.database}.*"],
            segments=str(self.folder / name),
            publish_interval="1 second",
            **{"snapshot": "spark", "snapshot_readers": 2, "snapshot_chunk_rows": 40} | options,
        )

    def capture(self, source: MariadbSource, read_chunks: ReadChunks) -> DatabaseCapture:
        from changelane.spark.runtime.jars import fetch_debezium

        return DatabaseCapture(
            source,
            fetch_debezium("mariadb"),
            notify=self.notes.append,
            read_chunks=read_chunks,
        )

    def log(self, source: MariadbSource) -> CaptureLog:
        return CaptureLog(LocalFolder(source.segments))

    def records(self, source: MariadbSource) -> list[CapturedRecord]:
        return records_of(self.log(source))


@pytest.fixture
def source(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[Source]:
    with mariadb_server.new_database("snapshot") as database:
        made = Source(mariadb_server, database, tmp_path)
        made.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        yield made
        made.connection.close()


def make_tables(source: Source) -> None:
    columns = ", ".join(f"`c{n}` {kind}" for n, kind in enumerate(TYPES))
    source.execute(
        f"CREATE TABLE types (id int PRIMARY KEY, {columns}, doubled int AS (id * 2) STORED, "
        "halved int AS (id DIV 2) VIRTUAL)"
    )
    source.execute(
        "CREATE TABLE composite (b varchar(20) COLLATE utf8mb4_german2_ci, a decimal(6,2), "
        "n int DEFAULT 7, PRIMARY KEY (b, a))"
    )
    source.execute(
        "INSERT INTO composite SELECT v, seq * 0.25, nullif(seq, 9) FROM seq_1_to_60 "
        "JOIN (SELECT 'a' v UNION ALL SELECT 'B' UNION ALL SELECT 'ä' UNION ALL SELECT 'z' "
        "UNION ALL SELECT '\\'' UNION ALL SELECT '\\\\' UNION ALL SELECT '_') t"
    )
    source.execute("CREATE TABLE huge (id bigint unsigned PRIMARY KEY, v int)")
    source.execute("INSERT INTO huge SELECT 18446744073709551615 - seq, seq FROM seq_0_to_49")
    source.execute("INSERT INTO huge SELECT seq, seq FROM seq_1_to_50")
    source.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    source.execute("CREATE TABLE loose (kind text, amount double)")
    source.execute("INSERT INTO loose SELECT 'same', 0.5 FROM seq_1_to_90")
    source.execute(
        "CREATE TABLE parts (day date, id int, PRIMARY KEY (day, id)) PARTITION BY RANGE "
        "(month(day)) (PARTITION a VALUES LESS THAN (2), PARTITION b VALUES LESS THAN MAXVALUE)"
    )
    source.execute(
        "INSERT INTO parts SELECT '2024-01-01' + INTERVAL seq % 80 DAY, seq FROM seq_1_to_120"
    )
    source.execute("CREATE TABLE `Skewed.2024` (id bigint PRIMARY KEY, `it's` text)")
    source.execute(
        "INSERT INTO `Skewed.2024` SELECT cast(seq AS signed) - 50, concat('n', seq) "
        "FROM seq_0_to_150 UNION ALL SELECT seq * 1000000000000, NULL FROM seq_1_to_9"
    )


def insert_types(source: Source, start: int) -> int:
    """Insert a row for each value of each type; return the number of rows."""
    row_count = max(len(values) for values in TYPES.values()) + 1
    names = ", ".join(["id", *(f"`c{n}`" for n in range(len(TYPES)))])
    for index in range(row_count):
        values = [
            literals[index]
            if index < len(literals)
            else literals[0]
            if "NOT NULL" in kind
            else "NULL"
            for kind, literals in TYPES.items()
        ]
        source.execute(f"INSERT INTO types ({names}) VALUES ({start + index}, {', '.join(values)})")
    return row_count


def test_rows_are_those_of_the_stream(source: Source) -> None:
    make_tables(source)
    row_count = insert_types(source, 0)
    options = source.options("readers")
    with source.capture(options, read_in_processes) as capture:
        capture.start(is_until_now=True)
        insert_types(source, 1000)
        for table in ("composite", "huge", "loose", "parts", "`Skewed.2024`"):
            source.execute(f"CREATE TABLE moved AS SELECT * FROM {table}")
            source.execute(f"DELETE FROM {table}")
            source.execute(f"INSERT INTO {table} SELECT * FROM moved")
            source.execute("DROP TABLE moved")
        capture.wait_until_now()
    log = source.log(options)
    first = log.manifest(1)
    assert first.record_count == row_count + 420 + 100 + 90 + 120 + 160
    assert len(first.segments) == 11 + 1 + 3 + 1 + 3 + 4
    assert SnapshotProgress(log.folder).plan() is None
    records = source.records(options)
    topic = f"{options.server_name}.{source.database}.types"
    rows = {op: rows_by_topic(records, op) for op in "rc"}
    values = {op: values_by_column(rows[op][topic]) for op in "rc"}
    kinds = ["id", *TYPES, "doubled", "halved"]
    assert len(values["r"]) == row_count * len(kinds)
    different = {
        (kinds[index], values["r"][row, index], values["c"].get((row + 1000, index)))
        for row, index in values["r"]
        if kinds[index] not in {"id", "doubled", "halved"}
        and values["r"][row, index] != values["c"].get((row + 1000, index))
    }
    assert different == set()
    for name in ("composite", "huge", "loose", "parts", "Skewed.2024"):
        table_topic = f"{options.server_name}.{source.database}.{name}"
        assert rows["r"][table_topic] == rows["c"][table_topic], name


def state_of(records: list[CapturedRecord], topic: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by their keys: of each key, the event with the highest position."""
    newest: dict[str, tuple[tuple[str, int, int], dict[str, Any] | None]] = {}
    for record in records:
        if record.topic != topic or record.value is None or record.key is None:
            continue
        payload = json.loads(record.value)["payload"]
        place = payload["source"]
        order = place["file"], place["pos"], place["row"]
        key = json.dumps(json.loads(record.key)["payload"])
        if key not in newest or newest[key][0] < order:
            newest[key] = order, payload["after"]
    return {key: row for key, (_, row) in newest.items() if row is not None}


def rows_without_key(records: list[CapturedRecord], topic: str) -> Counter[int]:
    payloads = [json.loads(r.value)["payload"] for r in records if r.topic == topic and r.value]
    return Counter(payload["after"]["n"] for payload in payloads)


def make_orders(source: Source) -> None:
    source.execute("CREATE TABLE loose (n int)")
    source.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    source.execute("INSERT INTO loose SELECT seq FROM seq_1_to_10")
    source.execute("INSERT INTO orders SELECT seq, 0 FROM seq_1_to_400")


def assert_equal_to_tables(source: Source, options: MariadbSource) -> None:
    records = source.records(options)
    topic = f"{options.server_name}.{source.database}"
    orders = state_of(records, f"{topic}.orders")
    assert sorted((row["id"], row["v"]) for row in orders.values()) == source.execute(
        "SELECT id, v FROM orders ORDER BY id"
    )
    loose = Counter(n for (n,) in source.execute("SELECT n FROM loose"))
    assert rows_without_key(records, f"{topic}.loose") == loose


def test_changes_during_the_snapshot_are_neither_lost_nor_doubled(source: Source) -> None:
    make_orders(source)
    options = source.options("readers", snapshot_readers=3)
    seed = random.SystemRandom().randrange(1 << 32)
    choose = random.Random(seed)
    stop = threading.Event()

    def change_rows() -> None:
        with closing(source.server.connect(source.database)) as connection:
            cursor = connection.cursor()
            for number in range(11, 1_000_000):
                if stop.is_set():
                    return
                cursor.execute(f"INSERT INTO loose VALUES ({number})")
                first = choose.randrange(1, 400)
                cursor.execute(
                    f"UPDATE orders SET v = v + 1 WHERE id BETWEEN {first} AND {first + 3}"
                )
                cursor.execute(f"DELETE FROM orders WHERE id = {choose.randrange(1, 400)}")
                cursor.execute(f"REPLACE INTO orders VALUES ({choose.randrange(1, 400)}, {number})")
                cursor.execute(
                    f"UPDATE IGNORE orders SET id = {choose.randrange(1, 800)} WHERE id = {first}"
                )
                time.sleep(0.002)

    changer = threading.Thread(target=change_rows)
    changer.start()
    try:
        with source.capture(options, read_in_processes) as capture:
            capture.start(is_until_now=True)
            stop.set()
            changer.join()
            capture.wait_until_now()
    finally:
        stop.set()
        changer.join()
    records = source.records(options)
    assert {"r", "c", "u", "d"} <= {
        json.loads(r.value)["payload"].get("op") for r in records if r.value
    }
    assert_equal_to_tables(source, options)


def test_commits_between_the_log_and_their_engine_are_neither_lost_nor_doubled(
    source: Source,
) -> None:
    make_orders(source)
    options = source.options("readers", snapshot_readers=2)

    def read_chunks(configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        is_exact = len(configs) == 1
        change = "INSERT INTO loose VALUES (99)" if is_exact else "UPDATE orders SET v = 7"
        with mariadb_commit(source.server, source.database, change):
            return read_in_processes(configs)

    with source.capture(options, read_chunks) as capture:
        capture.start(is_until_now=True)
        capture.wait_until_now()
    operations = Counter(
        json.loads(record.value)["payload"].get("op")
        for record in source.records(options)
        if record.value
    )
    assert operations["u"] == 400, "the readers saw none of the updates"
    assert operations["c"] == 1
    assert_equal_to_tables(source, options)


def test_an_interrupted_snapshot_continues_and_a_changed_table_begins_anew(source: Source) -> None:
    make_orders(source)
    options = source.options("readers")
    attempts: list[list[int]] = []

    def alter() -> None:
        source.execute("ALTER TABLE orders MODIFY v bigint")

    def insert() -> None:
        source.execute("INSERT INTO loose VALUES (11)")

    def update() -> None:
        source.execute("UPDATE orders SET v = v + 1")

    read_chunks = changing((alter, insert, update), attempts)
    with source.capture(options, read_chunks) as capture, pytest.raises(CaptureError):
        capture.start(is_until_now=True)
    assert SnapshotProgress(LocalFolder(options.segments)).plan() is not None
    assert any("was altered, truncated or rewritten" in note for note in source.notes)
    assert attempts[0] == attempts[1] == [0]  # the table without a key, again
    # the process ended between two chunks: the next one reads the others in later transactions
    source.execute("DELETE FROM orders WHERE id <= 10")
    source.execute("INSERT INTO loose VALUES (12)")
    source.execute("UPDATE orders SET id = id + 1000 WHERE id > 200")
    with source.capture(options, read_chunks) as capture:
        capture.start(is_until_now=True)
        capture.wait_until_now()
    assert 0 < len(attempts[3]) < len(attempts[2])
    assert 0 not in attempts[3]
    assert_equal_to_tables(source, options)
    with source.capture(options, read_chunks) as capture:  # the schemas fit the newest manifest
        capture.start(is_until_now=True)
        source.execute("ALTER TABLE orders ADD COLUMN more int")
        source.execute("INSERT INTO orders VALUES (5000, 1, 1)")
        capture.wait_until_now()
    assert len(attempts) == 4
    assert_equal_to_tables(source, options)


KEYS: Final = {
    "ENUM('sad','calm','glad')": ("'sad'", "'calm'", "'glad'"),
    "INT UNSIGNED": ("4294967295", "0", "2147483648"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807", "0"),
    "DECIMAL(20,3)": ("-1.5", "1.499", "1.5"),
    "DOUBLE": ("0.1", "0.30000000000000004", "0.3"),
    "DATE": ("'0000-00-00'", "'2024-02-29'", "'1000-01-01'"),
    "DATETIME(6)": ("'2024-02-29 00:00:00.000001'", "'2024-02-29'", "'1999-01-01'"),
    "TIMESTAMP(3)": ("'2024-10-27 01:30:00.001'", "'2024-10-27 00:30:00'", "'1999-01-01'"),
    "TIME(2)": ("'-01:00:00.5'", "'-01:00:00'", "'100:00:00'"),
    "YEAR": ("1901", "2155", "2000"),
    "VARCHAR(9) COLLATE utf8mb4_general_ci": ("'a'", "'B'", "'\\''", "'\U0001f600'", "''"),
    "VARCHAR(9) COLLATE utf8mb4_bin": ("'a'", "'B'", "'\u00e4'", "'%s'"),
    "CHAR(9) CHARACTER SET latin1 COLLATE latin1_german2_ci": ("'a'", "'\u00e4'", "'z'"),
    "VARCHAR(9) CHARACTER SET sjis": ("'\u8868'", "'a'", "'\\\\'"),
    "BINARY(3)": ("x'0001'", "x'ff'", "x'00'"),
    "VARBINARY(3)": ("x'0001'", "x'ff'", "x'00'", "''"),
}
"""Types of keys, and values."""


def test_chunks_of_keys_have_each_row_once(source: Source) -> None:
    tables = []
    for number, (kind, values) in enumerate(KEYS.items()):
        source.execute(f"CREATE TABLE k{number} (n int, k {kind}, PRIMARY KEY (k, n))")
        for value in values:
            source.execute(f"INSERT INTO k{number} VALUES (1, {value}), (2, {value})")
        tables.append(TableId(source.database, None, f"k{number}"))
    server = source.server
    login = MysqlConnection(
        **server.login,
        ssl_mode="disabled",
    )
    with closing(connect(login)) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        planned = snapshot_tables(connection, source.database, tables)
        for kind, table, values in zip(KEYS, planned, KEYS.values(), strict=True):
            parts = []
            chunks = chunks_of(connection, [table], max_rows=1, max_bytes=1 << 20)
            for chunk in chunks:
                cursor.execute(chunk_query(table, chunk))
                parts.append(list(cursor.fetchall()))
            rows = [row for part in parts for row in part]
            assert len(rows) == len(set(rows)) == 2 * len(values), kind
            is_divisible = not kind.startswith(("ENUM", "DOUBLE"))
            assert [len(part) for part in parts] == (
                [1] * len(rows) + [0] if is_divisible else [len(rows)]
            ), kind
