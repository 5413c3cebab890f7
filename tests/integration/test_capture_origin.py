# SPDX-License-Identifier: Apache-2.0
"""A capture log continues only with the server, the database and the tables that it has."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from mariadb_server import MariadbServer
from postgres_server import PostgresServer

from changelane.capture.database_capture import DatabaseCapture
from changelane.capture.database_findings import database_findings
from changelane.capture.log_origin import read_origin, write_origin
from changelane.capture.manifest import EngineOffset
from changelane.capture.products import captured_server_of
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.errors import ConfigError
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.mysql_source import MariadbSource
from changelane.pipeline.postgres_source import PostgresSource

ORIGIN_DEFECTS = {"other_database", "other_server", "new_table"}


def record_capture(source: DatabaseSource, offset: EngineOffset) -> None:
    """Record a capture up to an offset, with the tables as they are now."""
    folder = LocalFolder(source.segments)
    writer = SegmentWriter(folder, Path(source.segments) / "spool")
    writer.publish(offset)
    writer.close()
    write_origin(folder, captured_server_of(source).origin())


def origin_findings(source: DatabaseSource) -> list[tuple[str, str]]:
    findings = database_findings(source)
    others = [found.text() for found in findings if found.severity == "error"]
    found = [
        (finding.defect, finding.about) for finding in findings if finding.defect in ORIGIN_DEFECTS
    ]
    assert len(others) == len(found), others
    return found


def changed(source: Any, **options: Any) -> Any:
    return msgspec.structs.replace(source, **options)


def test_a_table_of_postgres_that_was_not_captured_stops_the_capture_if_it_has_rows(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with postgres_server.new_database("origin") as database:
        with postgres_server.connect(database) as connection:
            connection.execute(
                f"CREATE ROLE {database} LOGIN REPLICATION PASSWORD 'p';"
                "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1);"
                "CREATE PUBLICATION all_tables FOR ALL TABLES;"
                f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {database};"
                "ALTER DEFAULT PRIVILEGES IN SCHEMA public"
                f" GRANT SELECT ON TABLES TO {database}"
            )
            source = PostgresSource(
                host=postgres_server.host,
                port=postgres_server.port,
                database=database,
                user=database,
                password="p",
                tables=["public.*"],
                segments=str(tmp_path / "log"),
                slot=database,
                publication="all_tables",
                new_tables="stop",
            )
            row = connection.execute(
                "SELECT (lsn - '0/0')::bigint"
                " FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
                [database],
            ).fetchone()
            assert row is not None
            record_capture(source, {"lsn_commit": int(row[0])})
            assert origin_findings(source) == []

            connection.execute('CREATE TABLE "New.Items" (id int PRIMARY KEY)')
            assert origin_findings(source) == [], "its first rows will come from the log"
            connection.execute('INSERT INTO "New.Items" VALUES (1)')
            connection.execute("DROP TABLE orders; CREATE TABLE orders (id int PRIMARY KEY)")
            assert origin_findings(source) == [("new_table", 'table public."New.Items"')]
            connection.execute("INSERT INTO orders VALUES (2)")
            both = [("new_table", 'tables public."New.Items", public.orders')]
            assert origin_findings(source) == both
            assert origin_findings(changed(source, snapshot="none")) == []
            assert origin_findings(changed(source, new_tables="snapshot")) == [], "they are read"
            write_origin(LocalFolder(source.segments), captured_server_of(source).origin())
            assert origin_findings(source) == []

            folder = LocalFolder(source.segments)
            origin = read_origin(folder)
            assert origin is not None
            assert origin.identity.isdecimal()
            write_origin(folder, changed(origin, identity="1"))
            assert origin_findings(source) == [("other_server", f"database {database}")]
            write_origin(folder, changed(origin, database="another"))
            (found,) = origin_findings(source)
            assert found[0] == "other_database"
            capture = DatabaseCapture(source, tmp_path)
            with pytest.raises(ConfigError, match="it belongs to database another"):
                capture.start(is_new_snapshot=True)
            assert CaptureLog(folder).sequences() == [1], "the log is unchanged"
            capture = DatabaseCapture(changed(source, snapshot="none"), tmp_path)
            with pytest.raises(ConfigError, match="has `snapshot: none`"):
                capture.start(is_new_snapshot=True)
        with postgres_server.connect() as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [database])


def test_a_capture_log_of_mariadb_belongs_to_one_database(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    with mariadb_server.new_database("origin") as database:
        mariadb_server.run("CREATE TABLE orders (id int PRIMARY KEY)", database=database)
        source = MariadbSource(
            **mariadb_server.login,
            database=database,
            tables=[f"{database}.*"],
            segments=str(tmp_path / "log"),
            new_tables="stop",
        )
        ((file, position, *_),) = mariadb_server.run("SHOW MASTER STATUS")
        record_capture(source, {"file": file, "pos": position})
        assert origin_findings(source) == []
        mariadb_server.run(
            "CREATE TABLE `odd ``name` (id int PRIMARY KEY)",
            "INSERT INTO `odd ``name` VALUES (1)",
            database=database,
        )
        assert origin_findings(source) == [("new_table", f"table {database}.`odd ``name`")]
        with mariadb_server.new_database("other") as other:
            mariadb_server.run("CREATE TABLE orders (id int PRIMARY KEY)", database=other)
            (found,) = origin_findings(changed(source, database=other, tables=[f"{other}.*"]))
            assert found[0] == "other_database"
