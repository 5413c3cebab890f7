# SPDX-License-Identifier: Apache-2.0
"""The snapshot of a real PostgreSQL by several readers: every row once, as the engine writes it."""

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from hanging_commits import postgres_commit
from postgres_server import PostgresServer
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
from changelane.capture.postgres.connection import PostgresConnection, connect
from changelane.capture.postgres.publication import Publication
from changelane.capture.postgres.snapshot_tables import chunk_query, chunks_of, snapshot_tables
from changelane.capture.postgres.tables import read_relations, read_tables, selection_of
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.snapshot.first_load import ReadChunks
from changelane.capture.snapshot.plan import CompleteChunk, SnapshotProgress
from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
)
from changelane.capture.storage import LocalFolder
from changelane.pipeline.postgres_source import PostgresSource

TYPES: Final = {
    "numeric": ("1.50", "-99999999999999999999.0000000001", "0"),
    "numeric(10,2)": ("-0.01", "99999999.99"),
    "smallint": ("-32768",),
    "integer": ("2147483647",),
    "bigint": ("-9223372036854775808",),
    "real": ("1e-37", "NaN", "-Infinity"),
    "double precision": ("0.1", "-0.0", "Infinity"),
    "money": ("-1234.56",),
    "boolean": ("true",),
    "text": (
        "",
        "a\tb\nc\\ \"q\" 'x' \u20ac \U0001f600",
    ),
    "varchar(5)": ("abc",),
    "char(5)": ("ab",),
    "bytea": (r"\x00ff27", r"\x"),
    "date": ("0001-01-01", "infinity", "-infinity", "0044-03-15 BC", "1582-10-10"),
    "time": ("23:59:59.999999", "24:00:00"),
    "timetz": ("01:02:03.4+05:30",),
    "timestamp": ("2024-02-29 12:34:56.123456", "infinity", "-infinity", "0044-03-15 BC"),
    "timestamp(3)": ("1969-12-31 23:59:59.999",),
    "timestamptz": ("2024-10-27 02:30:00+02", "infinity", "-infinity"),
    "interval": ("1 year -2 days 03:04:05.000006",),
    "uuid": ("863aa675-ab57-437c-b83e-cd88633aeb12",),
    "json": ('{"a" : [1, 2.50, null]}',),
    "jsonb": ('{"b": 1e2, "a": "\u20ac"}',),
    "xml": ("<a>1</a>",),
    "inet": ("192.168.0.1/24", "::1"),
    "cidr": ("10.0.0.0/8",),
    "macaddr": ("08:00:2b:01:02:03",),
    "bit(3)": ("101",),
    "bit(1)": ("1",),
    "bit varying(8)": ("10101",),
    "point": ("(1.5,-2)",),
    "box": ("(1,1),(0,0)",),
    "int4range": ("[1,5)", "empty"),
    "tstzrange": ("[2024-01-01,)",),
    "tsvector": ("a:1 b:2",),
    "oid": ("4294967295",),
    "mood": ("sad", "it's \u20ac"),
    "positive": ("7",),
    "integer[]": ("{1,NULL,3}", "{}"),
    "text[]": ('{"a,b",NULL,"\\"q\\""}',),
    "numeric(8,3)[]": ("{1.5,-0.001}",),
    "timestamptz[]": ("{2024-01-01 00:00:00+00}",),
    "uuid[]": ("{863aa675-ab57-437c-b83e-cd88633aeb12}",),
    "pair": ("(1,x)",),
}
"""Values of each type; a NULL is added to each."""
COLLATION: Final = "en-x-icu"


class Source:
    """A database, and captures of it."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        self.folder = folder
        self.connection = server.connect(database)
        self.notes: list[str] = []

    def execute(self, statement: str) -> Any:
        return self.connection.execute(statement)

    def options(self, name: str, **options: Any) -> PostgresSource:
        return PostgresSource(
            **self.server.login_of(self.database),
            tables=["public.*"],
            segments=str(self.folder / name),
            slot=f"{self.database}_{name}",
            publication="changes",
            publish_interval="1 second",
            **{"snapshot": "spark", "snapshot_readers": 2, "snapshot_chunk_rows": 40} | options,
        )

    def capture(self, source: PostgresSource, read_chunks: ReadChunks) -> DatabaseCapture:
        from changelane.spark.runtime.jars import fetch_debezium

        return DatabaseCapture(
            source,
            fetch_debezium("postgres"),
            notify=self.notes.append,
            read_chunks=read_chunks,
        )

    def log(self, source: PostgresSource) -> CaptureLog:
        return CaptureLog(LocalFolder(source.segments))

    def records(self, source: PostgresSource) -> list[CapturedRecord]:
        return records_of(self.log(source))


@pytest.fixture
def source(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Source]:
    with postgres_server.new_database("snapshot") as database:
        made = Source(postgres_server, database, tmp_path)
        yield made
        made.connection.close()
        with postgres_server.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s",
                [database],
            )


def make_tables(source: Source) -> None:
    source.execute("CREATE TYPE mood AS ENUM ('sad', 'it''s \u20ac')")
    source.execute("CREATE TYPE pair AS (a int, b text)")
    source.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    columns = ", ".join(f'"c{n}" {kind}' for n, kind in enumerate(TYPES))
    source.execute(f"CREATE TABLE types (id int PRIMARY KEY, {columns}, flag boolean DEFAULT true)")
    source.execute(
        f'CREATE TABLE composite (b text COLLATE "{COLLATION}", a numeric(6,2), n int DEFAULT 7, '
        "PRIMARY KEY (b, a))"
    )
    source.execute(
        "INSERT INTO composite SELECT v || CASE n % 3 WHEN 0 THEN upper(v) ELSE '' END, "
        "n * 0.25, nullif(n, 9) FROM generate_series(1, 60) n, "
        "unnest(ARRAY['a', 'B', '\u00e4', 'z', '''', E'\\\\', '_']) v"
    )
    source.execute(
        "CREATE TABLE ids (id uuid PRIMARY KEY, "
        "gen text GENERATED ALWAYS AS ('x' || n::text) STORED, n int)"
    )
    source.execute(
        "INSERT INTO ids (id, n) SELECT md5(n::text)::uuid, n FROM generate_series(1, 130) n"
    )
    wide = ", ".join(f"c{n} int DEFAULT {n}" for n in range(400))
    source.execute(f"CREATE TABLE wide (id int PRIMARY KEY, {wide})")
    source.execute("INSERT INTO wide (id) SELECT n FROM generate_series(1, 50) n")
    source.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    source.execute("ANALYZE")  # the tables before have an estimated size, the others are counted
    source.execute("CREATE TABLE loose (kind text, amount double precision)")
    source.execute("ALTER TABLE loose REPLICA IDENTITY FULL")
    source.execute("INSERT INTO loose SELECT 'same', 0.5 FROM generate_series(1, 90)")
    source.execute("CREATE TABLE parent (id bigint PRIMARY KEY, note text)")
    source.execute("CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent)")
    source.execute("INSERT INTO parent SELECT n, 'p' FROM generate_series(1, 50) n")
    source.execute("INSERT INTO child SELECT n, 'c', n FROM generate_series(1, 50) n")
    source.execute(
        "CREATE TABLE parts (day date, id int, PRIMARY KEY (day, id)) PARTITION BY RANGE (day)"
    )
    for month in (1, 2, 3):
        source.execute(
            f"CREATE TABLE parts_{month} PARTITION OF parts FOR VALUES "
            f"FROM ('2024-0{month}-01') TO ('2024-0{month + 1}-01')"
        )
    source.execute(
        "INSERT INTO parts SELECT '2024-01-01'::date + n % 80, n FROM generate_series(1, 120) n"
    )
    # a few large gaps, and most rows in a small range
    source.execute('CREATE TABLE "Skewed.2024" (id bigint PRIMARY KEY, "it\'s" text)')
    source.execute(
        "INSERT INTO \"Skewed.2024\" SELECT n, 'n' || n FROM generate_series(-50, 100) n "
        "UNION ALL SELECT n * 1000000000000, NULL FROM generate_series(1, 9) n"
    )
    source.execute(
        "CREATE PUBLICATION changes FOR ALL TABLES WITH (publish_via_partition_root = true)"
    )


def insert_types(source: Source, start: int) -> int:
    """Insert a row for each value of each type; return the number of rows."""
    row_count = max(len(values) for values in TYPES.values()) + 1
    for index in range(row_count):
        values = [
            psycopg.sql.Literal(texts[index] if index < len(texts) else None).as_string()
            for texts in TYPES.values()
        ]
        source.execute(f"INSERT INTO types VALUES ({start + index}, {', '.join(values)}, NULL)")
    return row_count


def test_rows_are_those_of_the_engine_and_of_the_stream(source: Source) -> None:
    make_tables(source)
    row_count = insert_types(source, 0)
    by_readers, by_engine = source.options("readers"), source.options("e", snapshot="engine")
    with source.capture(by_readers, read_in_processes) as capture:
        capture.start(is_until_now=True)
        insert_types(source, 1000)
        capture.wait_until_now()
    log = source.log(by_readers)
    first = log.manifest(1)
    assert first.record_count == row_count + 420 + 130 + 90 + 100 + 120 + 160 + 50
    # chunks of 40 rows; the tables without a key, and with a key in one chunk, are one each
    assert len(first.segments) == 11 + 4 + 1 + 2 + 2 + 3 + 4 + 2 + 1
    assert SnapshotProgress(log.folder).plan() is None
    records = source.records(by_readers)

    # the stream has the same values with the same schemas
    topic = f"{by_readers.server_name}.public.types"
    values = {op: values_by_column(rows_by_topic(records, op)[topic]) for op in "rc"}
    kinds = ["id", *TYPES, "flag"]
    assert len(values["r"]) == row_count * len(kinds)
    different = {
        (kinds[index], values["r"][row, index], values["c"].get((row + 1000, index)))
        for row, index in values["r"]
        if index > 0 and values["r"][row, index] != values["c"].get((row + 1000, index))
    }
    assert different == set()

    source.execute("DELETE FROM types WHERE id >= 1000")
    with source.capture(by_engine, read_in_processes) as capture:
        capture.start(is_until_now=True)
        capture.wait_until_now()
    expected = rows_by_topic(source.records(by_engine), "r")
    rows = rows_by_topic(records, "r")
    server = by_readers.server_name
    assert expected.keys() == rows.keys()
    # the engine's snapshot has other values for some dates
    for topic in rows.keys() - {f"{server}.public.types"}:
        assert rows[topic] == expected[topic], topic
    types, engine_types = (
        {place: value for place, value in found.items() if kinds[place[1]] != "date"}
        for found in (values["r"], values_by_column(expected[f"{server}.public.types"]))
    )
    assert types == engine_types
    notes = {json.loads(text)[1]["note"] for _, text in rows[f"{server}.public.parent"]}
    assert notes == {"p"}
    assert all('"gen"' not in text for _, text in rows[f"{server}.public.ids"])


def test_a_lost_snapshot_continues_and_a_changed_table_begins_anew(source: Source) -> None:
    source.execute("CREATE TABLE loose (n int)")
    source.execute("ALTER TABLE loose REPLICA IDENTITY FULL")
    source.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    source.execute("INSERT INTO orders SELECT n, 0 FROM generate_series(1, 200) n")
    source.execute("INSERT INTO loose SELECT n FROM generate_series(1, 10) n")
    source.execute("CREATE PUBLICATION changes FOR ALL TABLES")
    options = source.options("readers")
    attempts: list[list[int]] = []

    def rewrite() -> None:
        source.execute("ALTER TABLE orders ALTER COLUMN v TYPE bigint")

    def kill_exporter() -> None:
        # the readers of the first part have the snapshot no more than those of the rest
        source.execute("UPDATE orders SET v = v + 1")

    read_chunks = changing((rewrite, kill_exporter), attempts)
    with source.capture(options, read_chunks) as capture, pytest.raises(CaptureError):
        capture.start(is_until_now=True)
    plan = SnapshotProgress(LocalFolder(options.segments)).plan()
    assert plan is not None
    assert any("was altered, truncated or rewritten" in note for note in source.notes)
    assert attempts[0] == attempts[1]  # all of them, again
    # the process ended between two chunks: the next one reads the others in a later snapshot
    source.execute("DELETE FROM orders WHERE id <= 10")
    source.execute("INSERT INTO loose VALUES (11)")
    with source.capture(options, read_chunks) as capture:
        capture.start(is_until_now=True)
        capture.wait_until_now()
    assert 0 < len(attempts[2]) < len(attempts[1])
    assert 0 not in attempts[2]  # the table without a key was complete
    state: dict[int, int] = {}
    loose = Counter[int]()
    for record in source.records(options):
        key = json.loads(record.key)["payload"]["id"] if record.key else None
        payload = json.loads(record.value)["payload"] if record.value else {"after": None}
        if key is None:
            loose[payload["after"]["n"]] += 1
        elif payload["after"] is None:
            state.pop(key, None)
        else:
            state[key] = payload["after"]["v"]
    assert state == dict.fromkeys(range(11, 201), 1)
    assert loose == Counter(range(1, 12))


def test_chunks_that_a_new_history_deleted_are_read_again(source: Source) -> None:
    source.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    source.execute("INSERT INTO orders SELECT generate_series(1, 100)")
    source.execute("CREATE PUBLICATION changes FOR ALL TABLES")
    options = source.options("readers")
    folder = LocalFolder(options.segments)
    attempts: list[list[int]] = []

    def read_nothing(configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        attempts.append(sorted(chunk.number for config in configs for chunk in config.chunks))
        return [ReaderEnd("stopped")]

    def start() -> None:
        capture = DatabaseCapture(options, source.folder, read_chunks=read_nothing)
        with pytest.raises(CaptureError, match="stopped"):
            capture.start()

    start()
    progress = SnapshotProgress(folder)
    plan = progress.plan()
    assert plan is not None
    progress.complete(plan, CompleteChunk(0, ()))
    start()
    # --new-snapshot was killed before it dropped the slot; its manifest deleted the segments
    SegmentWriter(folder, source.folder / "spool").begin_history()
    start()
    assert attempts == [[0, 1, 2], [1, 2], [0, 1, 2]]


KEYS: Final = {
    "mood": ("'sad'", "'calm'", "'glad'"),
    "inet": ("'10.0.0.10'", "'10.0.0.9'", "'10.0.0.9/8'"),
    "citext": ("'a'", "'B'", "'c'", "'D'"),
    "folded": ("'a'", "'B'", "'c'", "'D'"),
}
"""Types of keys with another order than their texts, and values in their order."""


def test_chunks_of_keys_have_each_row_once(source: Source) -> None:
    source.execute("CREATE EXTENSION citext")
    source.execute("CREATE DOMAIN folded AS citext")
    source.execute("CREATE TYPE mood AS ENUM ('sad', 'calm', 'glad')")
    for kind, values in KEYS.items():
        source.execute(f'CREATE TABLE "of {kind}" (n int, k {kind}, PRIMARY KEY (n, k))')
        source.execute(f'INSERT INTO "of {kind}" VALUES (1, {"), (1, ".join(values)})')
    server = source.server
    login = PostgresConnection(
        **server.login_of(source.database),
    )
    with connect(login) as connection:
        relations = read_relations(connection)
        tables = read_tables(connection, relations, selection_of(relations, ["public.*"]).tables)
        planned = snapshot_tables(connection, tables, Publication(name=""))
        chunks = chunks_of(connection, planned, max_rows=1, max_bytes=1 << 20)
        rows: dict[str, list[list[str]]] = {}
        for chunk in chunks:
            read = connection.execute(chunk_query(planned[chunk.table], chunk).encode()).fetchall()
            rows.setdefault(planned[chunk.table].name, []).append([k for _, k in read])
    for kind, values in KEYS.items():
        parts = rows[f"of {kind}"]
        texts = [str(k) for part in parts for k in part]
        assert len(texts) == len(set(texts)) == len(values), kind
    assert [len(part) for part in rows["of mood"]] == [1, 1, 1, 0]
    assert [len(part) for part in rows["of citext"]] == [4], "its order has no name without a path"


def test_a_lost_snapshot_with_values_out_of_line_begins_anew(source: Source) -> None:
    """A row that gets another key keeps its value, although the log does not repeat it."""
    source.execute("CREATE TABLE documents (id int PRIMARY KEY, body text)")
    source.execute("ALTER TABLE documents ALTER COLUMN body SET STORAGE EXTERNAL")
    body = "x" * 5000
    source.execute(f"INSERT INTO documents SELECT n, '{body}' FROM generate_series(1, 300) n")
    source.execute("CREATE PUBLICATION changes FOR ALL TABLES")
    options = source.options("readers")
    attempts: list[list[int]] = []

    def move() -> None:
        source.execute("UPDATE documents SET id = id + 1000")

    read_chunks = changing((move,), attempts)
    with source.capture(options, read_chunks) as capture, pytest.raises(CaptureError):
        capture.start(is_until_now=True)
    with source.capture(options, read_chunks) as capture:
        capture.start(is_until_now=True)
        capture.wait_until_now()
    assert attempts[0] == attempts[1], "the snapshot did not begin anew"
    rows = [json.loads(record.value)["payload"] for record in source.records(options)]
    assert [(row["op"], row["after"]["id"]) for row in rows] == [
        ("r", number) for number in range(1001, 1301)
    ]
    assert {row["after"]["body"] for row in rows} == {body}


def test_commits_that_are_not_visible_yet_are_neither_lost_nor_doubled(
    source: Source,
) -> None:
    source.execute(f"ALTER DATABASE {source.database} SET synchronous_commit = local")
    source.execute("CREATE TABLE orders (id int PRIMARY KEY, v int)")
    source.execute("CREATE TABLE loose (n int); ALTER TABLE loose REPLICA IDENTITY FULL")
    source.execute("INSERT INTO orders SELECT n, 0 FROM generate_series(1, 90) n")
    source.execute("CREATE PUBLICATION changes FOR ALL TABLES")
    options = source.options("readers")

    def commit(number: int) -> contextlib.AbstractContextManager[None]:
        changes = f"UPDATE orders SET v = {number} WHERE id <= 60; INSERT INTO loose VALUES (1)"
        return postgres_commit(source.server, source.database, changes)

    def read_chunks(configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        with commit(2):
            return read_in_processes(configs)

    with source.capture(options, read_chunks) as capture:
        start = threading.Thread(target=lambda: capture.start(is_until_now=True))
        with commit(1):
            start.start()
            time.sleep(2)  # the slot waits for the commit
            assert start.is_alive()
        start.join()
        capture.wait_until_now()
    events = [
        json.loads(record.value)["payload"] for record in source.records(options) if record.value
    ]
    orders = [(event["op"], event["after"]) for event in events if "v" in (event["after"] or {})]
    assert Counter((op, row["v"]) for op, row in orders) == {
        ("r", 1): 60,
        ("r", 0): 30,
        ("u", 2): 60,
    }
    loose = Counter(event["op"] for event in events if "n" in (event.get("after") or {}))
    assert loose == {"r": 1, "c": 1}
