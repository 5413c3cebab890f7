# SPDX-License-Identifier: Apache-2.0
"""Commits that are in the log and not yet visible: no snapshot may take their position for its own.

A commit is in the log before other transactions see its rows. A synchronous replica that does not
answer makes this moment as long as a test needs.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hanging_commits import mariadb_commit, postgres_commit
from mariadb_server import MariadbServer
from postgres_server import PostgresServer

from changelane.capture.mysql import MysqlConnection, begin_snapshot, connect
from changelane.capture.mysql.connection import read_rows
from changelane.capture.repairs import repair_names
from changelane.capture.segment_store import SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.postgres_source import PostgresSource
from changelane.spark.verify.canonical_text import key_field
from changelane.spark.verify.comparison import Difference
from changelane.spark.verify.postgres_database import PostgresDatabase, open_postgres
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.table_plan import ComparedColumn, TablePlan
from changelane.spark.verify.table_planning import verified_target
from changelane.spark.verify.table_verification import (
    ColumnTypes,
    TableVerification,
    Verification,
    VerifyOptions,
)


@pytest.fixture
def server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server of its own, whose commits the test delays; those of the role ``reader`` are not."""
    del postgres_server  # which skips where PostgreSQL is not installed
    with PostgresServer() as server:
        with server.connect() as connection:
            connection.execute(
                "CREATE TABLE items (id bigint PRIMARY KEY, n bigint);"
                "CREATE PUBLICATION changelane_shop FOR TABLE items;"
                "INSERT INTO items VALUES (1, 0), (2, 0);"
                "CREATE ROLE reader SUPERUSER LOGIN PASSWORD 'p';"
                "ALTER ROLE reader SET synchronous_commit = local"
            )
        yield server


def plan() -> TablePlan:
    text = PostgresType("int8").text("bigint")
    assert text is not None
    columns = tuple(
        ComparedColumn(name=name, lake_name=name, lake_type="bigint", text=text)
        for name in ("id", "n")
    )
    return TablePlan(key_columns=columns[:1], columns=columns, ranges=(), unproven_columns={})


def pipeline_of(server: PostgresServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("PGPASSWORD_OF_TEST", "p")
    config = {
        "name": "shop",
        "source": {
            "type": "postgres",
            "host": server.host,
            "port": server.port,
            "database": server.database,
            "user": "reader",
            "password": "${PGPASSWORD_OF_TEST}",
            "tables": ["public.items"],
            "publication": "changelane_shop",
            "segments": str(folder / "capture"),
        },
        "sink": {"type": "delta", "path": str(folder / "delta")},
    }
    (folder / "shop.yaml").write_bytes(msgspec.json.encode(config))
    return load(folder / "shop.yaml")


@contextlib.contextmanager
def verification(
    pipeline: Pipeline, *, timeout_s: float
) -> Iterator[tuple[PostgresDatabase, TableVerification]]:
    assert isinstance(pipeline.source, PostgresSource)
    lake: Any = None  # nothing of the lake is read
    with open_postgres(pipeline.source) as database:
        (table,) = database.tables()
        options = VerifyOptions(timeout_s=timeout_s, repairs=True)
        parts = Verification(pipeline, pipeline.source, database, lake, options, lambda _: None)
        verified = TableVerification(parts, table, verified_target(pipeline, table.id))
        # what the first reading finds, which needs a lake
        verified.columns_plan = plan()
        with database.open_snapshot(table):
            verified._types = ColumnTypes(database.column_types(table), {})
        yield database, verified


def test_a_repair_never_replaces_a_commit_that_was_not_visible(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_of(server, tmp_path, monkeypatch)
    assert isinstance(pipeline.source, PostgresSource)
    folder = LocalFolder(pipeline.source.segments)
    writer = SegmentWriter(folder, tmp_path / "spool")
    writer.publish({"lsn_commit": 1})
    writer.close()
    differences = [Difference(key_field(number), "columns", ("n",)) for number in ("1", "2")]
    open_reason = "not repaired: a transaction that may change the table is still open"

    with verification(pipeline, timeout_s=0.5) as (database, table):
        (verified_table,) = database.tables()
        with database.open_snapshot(verified_table) as snapshot:
            assert snapshot.writers() == frozenset()
        with postgres_commit(server, server.database, "UPDATE items SET n = 7 WHERE id = 1"):
            with server.connect() as connection:
                end = connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
            with database.open_snapshot(verified_table) as snapshot:
                assert end is not None
                assert snapshot.position_text >= end[0], "the commit is below the snapshot"
                assert database.rows(verified_table, plan()).texts(
                    frozenset(d.key for d in differences)
                ) == {d.key: [[key, "0"]] for d, key in zip(differences, "12", strict=True)}
            assert set(table.repair(differences).values()) == {open_reason}
    assert repair_names(folder) == []

    results: dict[str, str] = {}
    with verification(pipeline, timeout_s=60) as (_, table):

        def repair() -> None:
            with contextlib.suppress(AttributeError):  # the test has no lake for a last reading
                results.update(table.repair(differences[:1]))

        with postgres_commit(server, server.database, "UPDATE items SET n = 8 WHERE id = 1"):
            thread = threading.Thread(target=repair)
            thread.start()
            time.sleep(1)  # the repair waits for the commit
            assert thread.is_alive()
        thread.join(60)
    assert results == {differences[0].key: "not repaired: the row changed meanwhile"}
    assert repair_names(folder) == []


def test_the_position_of_a_snapshot_of_mariadb_precedes_a_commit_that_is_not_visible(
    mariadb_server: MariadbServer,
) -> None:
    login = MysqlConnection(**mariadb_server.login)
    with mariadb_server.new_database("snapshot") as database:
        mariadb_server.run("CREATE TABLE items (id int PRIMARY KEY)", database=database)
        with (
            mariadb_commit(mariadb_server, database, "INSERT INTO items VALUES (1)"),
            contextlib.closing(connect(login)) as connection,
        ):
            position = begin_snapshot(connection)
            assert read_rows(connection, f"SELECT id FROM {database}.items") == []
        events = mariadb_server.run(
            f"SHOW BINLOG EVENTS IN '{position.file}' FROM {position.offset}"
        )
        assert "Write_rows_v1" in [event[2] for event in events]
