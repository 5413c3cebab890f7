# SPDX-License-Identifier: Apache-2.0
"""The source's side of a verification on a real PostgreSQL: types, keys, chunks and hashes."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from postgres_server import PostgresServer

from changelane.capture.log_origin import write_origin
from changelane.capture.postgres import PostgresConnection, connect
from changelane.capture.postgres.captured_postgres import CapturedPostgres
from changelane.capture.postgres.publication import read_publication
from changelane.capture.postgres.tables import read_relations
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.postgres_source import PostgresSource
from changelane.spark.verify.canonical_text import CanonicalText, field_of, key_field
from changelane.spark.verify.postgres_database import open_postgres
from changelane.spark.verify.postgres_rows import PostgresTable, source_columns
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.table_plan import ComparedColumn, RangeColumn, TablePlan, chunk_of
from changelane.spark.verify.verify import verify

TABLE = """
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE EXTENSION citext;
CREATE SCHEMA other;
CREATE TYPE other.uuid AS (a int);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN amount AS numeric(8, 2);
CREATE DOMAIN price AS amount;
CREATE TABLE "t %s" (
  "a %" text COLLATE any_case, b text COLLATE "en-x-icu", n bigint, u other.uuid, m mood, p price,
  pp price[], na numeric(3, 1)[], ci citext[], PRIMARY KEY (b, "a %", n));
INSERT INTO "t %s" SELECT chr(65 + n % 2 * 32), chr(90 + n % 20), n FROM generate_series(1, 100) n;
"""


@pytest.mark.parametrize(
    ("kind", "lake", "literal", "value"),
    [
        ("int8", "bigint", "-7", -7),
        ("text", "string", "a:1 ü😀", "a:1 ü😀"),
        ("bpchar", "string", "a  ", "a  "),
        ("uuid", "string", "6F9619FF-8B86-D011-B42D-00CF4FC964FF", None),
        ("bool", "boolean", "true", True),
        ("bytea", "binary", "\\x00ff", b"\x00\xff"),
        ("date", "date", "1582-10-10", dt.date(1582, 10, 10)),
        ("date", "date", "9999-12-31", dt.date(9999, 12, 31)),
        ("timestamp", "timestamp_ntz", "1582-10-10 10:00:00.000001", None),
        ("timestamptz", "timestamp", "2024-02-29 23:59:59.999999+01", None),
        ("numeric", "decimal(10,2)", "-1.5", decimal.Decimal("-1.5")),
        ("numeric", "decimal(38,10)", "0.0000000001", decimal.Decimal("1E-10")),
    ],
)
def test_keys_of_tombstones_have_the_fields_of_the_source(
    postgres_server: PostgresServer, kind: str, lake: str, literal: str, value: Any
) -> None:
    modifiers = {"decimal(10,2)": (10 << 16 | 2) + 4, "decimal(38,10)": (38 << 16 | 10) + 4}
    source_type = PostgresType(kind, modifiers.get(lake, -1))
    text, key_text = source_type.text(lake), source_type.key_text(lake)
    assert text is not None
    assert key_text is not None
    with postgres_server.connect() as connection:
        query = f"SELECT {field_of('x', text.source, 'text')}, x FROM (SELECT %s::{kind} AS x) AS t"
        row = connection.execute(query.encode(), [literal]).fetchone()
    assert row is not None
    field, stored = row
    if value is None:
        value = str(stored) if kind == "uuid" else stored
    assert key_field(key_text(value)) == field


def test_chunks_and_rows_of_keys_with_any_collation(postgres_server: PostgresServer) -> None:
    with postgres_server.new_database("verify") as database:
        with postgres_server.connect(database) as connection:
            connection.execute(TABLE)
        login = PostgresConnection(
            **postgres_server.login_of(database),
        )
        with connect(login) as connection:
            (relation,) = read_relations(connection)
            types = source_columns(connection, relation.oid)
            assert types["u"] == PostgresType("other.uuid", is_nullable=True)
            assert not types["b"].is_nullable
            assert types["m"].is_enum
            assert (types["p"].name, types["p"].scale) == ("numeric", 2)
            assert types["pp"].element == PostgresType("public.price")
            assert types["na"].element == PostgresType("numeric", (3 << 16 | 1) + 4)
            assert types["ci"].element == PostgresType("citext")
            table = PostgresTable(connection, relation, _plan(types))
            bounds = table.chunk_bounds(30)
            assert len(bounds) == 3
            table = PostgresTable(connection, relation, _plan(types), bounds=bounds)
            left_out = frozenset({"1:Z1:A2:40"})  # b, "a %", n
            all_sums, sums = table.sums(frozenset()), table.sums(left_out)
            assert sorted(s.count + s.left_out_count for s in sums.values()) == [10, 30, 30, 30]
            assert sum(s.count for s in sums.values()) == 99
            keys: set[str] = set()
            for chunk, chunk_sums in all_sums.items():
                hashes = table.hashes(chunk, frozenset())
                halves = [int(h[:16], 16) for (h,) in hashes.values()]
                assert chunk_sums.first == sum(halves) % (1 << 64)
                keys |= hashes.keys()
                assert {chunk_of(key, table.columns_plan, bounds) for key in hashes} == {chunk}
                assert table.sums(left_out, chunk) == {chunk: sums[chunk]}
            assert len(keys) == 100
            some_keys = frozenset(sorted(keys)[:3])
            rows = table.fields(some_keys | {"1:x1:y1:1"})
            assert rows.keys() == some_keys, "no row of an absent key, nor of an equal one by case"


def source_of(server: PostgresServer, database: str, **options: Any) -> PostgresSource:
    """Return the source of all tables of a database."""
    return PostgresSource(
        **server.login_of(database),
        tables=["public.*"],
        segments="capture",
        **options,
    )


@pytest.mark.parametrize(
    ("statement", "is_intact"),
    [
        ("SELECT", True),
        ("UPDATE t SET v = 2", True),
        ("TRUNCATE t", False),
        ("ALTER TABLE t ALTER v TYPE bigint", False),
        ("ALTER TABLE t ADD w int DEFAULT 7", False),
        ("DROP TABLE t", False),
        ("ALTER TABLE t RENAME TO u", False),
        ("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int)", False),
    ],
)
def test_a_snapshot_is_not_intact_after_statements_that_hide_or_alter_its_rows(
    postgres_server: PostgresServer, statement: str, is_intact: bool
) -> None:
    with postgres_server.new_database("verify") as database:
        source = source_of(postgres_server, database)
        with postgres_server.connect(database) as connection:
            connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
            connection.execute("INSERT INTO t VALUES (1, 1)")
            connection.commit()
            with open_postgres(source) as verified:
                (table,) = verified.tables()
                with verified.open_snapshot(table) as snapshot:
                    connection.execute(statement.encode())
                    connection.commit()
                    assert snapshot.is_intact() is is_intact
                    if not is_intact:
                        return
                    connection.execute("SET lock_timeout = 100")
                    with pytest.raises(psycopg.errors.LockNotAvailable):
                        connection.execute("TRUNCATE t")


def test_rows_that_the_publication_leaves_out_are_not_compared(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.new_database("verify") as database:
        with postgres_server.connect(database) as connection:
            connection.execute(TABLE)
            connection.execute(
                """CREATE PUBLICATION part FOR TABLE "t %s" WHERE (n > 90 AND b NOT LIKE 'Z%')"""
            )
        login = PostgresConnection(
            **postgres_server.login_of(database),
        )
        with connect(login) as connection:
            (relation,) = read_relations(connection)
            publication = read_publication(connection, "part")
            assert publication is not None
            table = PostgresTable(
                connection,
                relation,
                _plan(source_columns(connection, relation.oid)),
                publication.tables["public", "t %s"].row_filter,
            )
            table = msgspec.structs.replace(table, bounds=table.chunk_bounds(4))
            sums = table.sums(frozenset())
            assert sum(chunk_sums.count for chunk_sums in sums.values()) == 9
            keys = [key for chunk in sums for key in table.hashes(chunk, frozenset())]
            assert len(keys) == 9
            assert len(table.fields(frozenset([*keys, "1:Y1:A1:1"]))) == 9


def test_columns_that_the_publication_leaves_out_are_named(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.new_database("verify") as database:
        with postgres_server.connect(database) as connection:
            connection.execute(
                "CREATE TABLE t (id int PRIMARY KEY, a int, secret text, "
                "g int GENERATED ALWAYS AS (id + 1) STORED)"
            )
            connection.execute("CREATE TABLE whole (id int PRIMARY KEY, a int)")
            connection.execute("CREATE PUBLICATION part FOR TABLE t (id, a), whole")
        source = source_of(postgres_server, database, publication="part")
        with open_postgres(source) as postgres_database:
            tables = postgres_database.tables()
        unpublished = {table.id.name: table.unpublished for table in tables}
        assert unpublished == {"t": {"g", "secret"}, "whole": frozenset()}


def _plan(types: dict[str, PostgresType]) -> TablePlan:
    columns = []
    for name in ("b", "a %", "n"):
        lake_type = "bigint" if name == "n" else "string"
        text = types[name].text(lake_type)
        assert isinstance(text, CanonicalText)
        columns.append(
            ComparedColumn(
                name=name,
                lake_name=name,
                lake_type=lake_type,
                text=text,
                key_text=types[name].key_text(lake_type),
                key_cast=types[name].key_cast,
            )
        )
    ranges = []
    for column in columns:
        texts = types[column.name].range_texts("bigint" if column.name == "n" else "string")
        assert texts is not None
        ranges.append(RangeColumn(column, texts))
    return TablePlan(
        key_columns=tuple(columns),
        columns=tuple(columns),
        ranges=tuple(ranges),
        unproven_columns={},
    )


def test_a_capture_log_of_something_else_is_not_compared(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD_OF_TEST", postgres_server.password)
    with postgres_server.new_database("verify") as database:
        config = {
            "name": "shop",
            "source": {
                "type": "postgres",
                "host": postgres_server.host,
                "port": postgres_server.port,
                "database": database,
                "user": postgres_server.user,
                "password": "${PGPASSWORD_OF_TEST}",
                "tables": ["public.*"],
                "segments": str(tmp_path / "capture"),
            },
            "sink": {"type": "delta", "path": str(tmp_path / "delta")},
        }
        file = tmp_path / "shop.yaml"
        file.write_bytes(msgspec.json.encode(config))
        pipeline = load(file)
        assert isinstance(pipeline.source, PostgresSource)
        folder = LocalFolder(pipeline.source.segments)
        session: Any = None  # nothing of the lake is read

        writer = SegmentWriter(folder, tmp_path / "spool")
        writer.begin_history()
        with pytest.raises(ConfigError, match="has no complete first load"):
            verify(pipeline, spark=session)
        writer.publish({"lsn": 1})
        origin = CapturedPostgres(pipeline.source).origin()
        write_origin(folder, msgspec.structs.replace(origin, identity="1"))
        with pytest.raises(ConfigError, match="the server is not the one that was captured"):
            verify(pipeline, spark=session)
