# SPDX-License-Identifier: Apache-2.0
"""Partitioned and inheriting tables and generated columns of a real PostgreSQL, into tables."""

from collections import Counter
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from click.testing import CliRunner
from postgres_server import PostgresServer
from pyspark.sql import SparkSession
from test_capture import COLUMNS, Shop, shop

from changelane.capture.postgres.ddl_trigger import INSTALLATION
from changelane.cli import main
from changelane.schema import TableId

__all__ = ["shop"]  # the fixture

TABLES: Final = {
    "parts": ("day", "id", "v", "note"),
    "parent": ("id", "note"),
    "child": ("id", "note", "more"),
    "ids": ("id", "n"),
}
CREATE: Final = (
    (
        "CREATE TABLE parts (day date, id int, v int, note text, PRIMARY KEY (day, id)) "
        "PARTITION BY RANGE (day)"
    ),
    "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
    # other columns in another order
    "CREATE TABLE parts_2 (gone int, note text, v int, id int, day date, PRIMARY KEY (day, id))",
    "ALTER TABLE parts_2 DROP COLUMN gone",
    "ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    "CREATE TABLE parent (id bigint PRIMARY KEY, note text)",
    "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent)",
    (
        "CREATE TABLE ids (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, "
        "gen text GENERATED ALWAYS AS ('x' || n::text) STORED)"
    ),
    "INSERT INTO parts SELECT '2024-01-01'::date + n % 60, n, 0, 'n' FROM generate_series(1, 90) n",
    "INSERT INTO parent SELECT n, 'p' FROM generate_series(1, 20) n",
    "INSERT INTO child SELECT n, 'c', n FROM generate_series(11, 40) n",
    "INSERT INTO ids (n) SELECT n FROM generate_series(1, 30) n",
)
CHANGES: Final = (
    "UPDATE parts SET v = v + 1 WHERE id % 2 = 0",
    # into the other partition, and into one that is new
    "UPDATE parts SET day = day + 31 WHERE day < '2024-01-20' AND id < 50",
    "CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')",
    "UPDATE parts SET day = day + 29, note = NULL WHERE day >= '2024-02-20' AND id < 80",
    "INSERT INTO parts VALUES ('2024-03-05', 1000, 1, 'new')",
    "DELETE FROM parts WHERE id % 7 = 0",
    "INSERT INTO child VALUES (100, 'new', 1)",
    "UPDATE parent SET note = note || '.'",
    "DELETE FROM parent WHERE id IN (5, 15, 25)",
    "UPDATE ids SET n = n + 1 WHERE id < 10",
    "INSERT INTO ids (n) VALUES (77)",
)


class Parts(Shop):
    """A database with partitions, and the pipeline that captures it."""

    def configure(self, **options: Any) -> None:
        config = msgspec.json.decode(self.file.read_bytes())
        config["source"] |= options
        self.file.write_bytes(msgspec.json.encode(config))

    def execute(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def command(self, name: str, *arguments: str, code: int = 0) -> str:
        environment = {"PGPASSWORD_OF_TEST": self.server.password}
        words = [*name.split(), str(self.file), *arguments]
        done = CliRunner(env=environment).invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    def source_rows(self, table: str) -> Counter[tuple[Any, ...]]:
        columns = ", ".join(COLUMNS[table])
        only = "" if table == "parts" else "ONLY"
        with self.connect() as connection:
            query = f"SELECT {columns} FROM {only} public.{table}"
            return Counter(connection.execute(query.encode()).fetchall())

    def check_tables(self, spark: SparkSession, *tables: str) -> None:
        for table in tables:
            assert self.table_rows(spark, table) == self.source_rows(table), table


@pytest.fixture
def parts(postgres_server: PostgresServer, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Parts:
    for name, columns in TABLES.items():
        monkeypatch.setitem(COLUMNS, name, columns)
    for name in ("parts_1", "parts_2"):
        monkeypatch.setitem(COLUMNS, name, TABLES["parts"])
    made = Parts(postgres_server, shop.database, shop.folder)
    made.execute("DROP TABLE orders, documents, events", *CREATE)
    return made


@pytest.mark.parametrize("snapshot", ["engine", "spark"])
def test_tables_are_those_of_the_source_and_moved_partitions_are_a_warning(
    spark: SparkSession, parts: Parts, snapshot: str
) -> None:
    parts.configure(snapshot=snapshot, snapshot_readers=1, snapshot_chunk_rows=40)
    parts.command("run")
    parts.check_tables(spark, *TABLES)
    parts.execute(*CHANGES)
    assert "partition" not in parts.command("run")
    parts.check_tables(spark, *TABLES)
    ids = lake_tables.table_of(spark, parts.lake, TableId(parts.database, "public", "ids"))
    assert "gen" not in ids.columns, "the log does not have it"

    parts.execute(
        "ALTER TABLE parts DETACH PARTITION parts_1",
        "INSERT INTO parts_1 VALUES ('2024-01-31', 5000, 5, 'alone')",
        "CREATE TABLE late (LIKE parts INCLUDING ALL)",
        "INSERT INTO late VALUES ('2024-04-01', 2000, 2, 'before')",
        "ALTER TABLE parts ATTACH PARTITION late FOR VALUES FROM ('2024-04-01') TO ('2024-05-01')",
        "INSERT INTO parts VALUES ('2024-04-02', 2001, 2, 'after')",
        "UPDATE parts SET v = 9 WHERE id = 1000",
    )
    detached = parts.source_rows("parts_1")
    attached_note = (
        "table public.parts: attached with rows: public.late; the log has no rows from before, "
        "which the lake may lack: `changelane snapshot redo PIPELINE.yaml public.parts` reads them"
    )
    detached_note = "table public.parts: detached or dropped: public.parts_1; the lake keeps"
    # the publication lacks the detached table, which a run adds
    checked = parts.command("check", code=2)
    first, second = parts.command("run"), parts.command("run")
    for output in (checked, first):
        assert attached_note in " ".join(output.split())
        assert detached_note in " ".join(output.split())
    assert attached_note in second
    assert detached_note not in second
    parts.check_tables(spark, "parts_1")
    former = Counter({row: 1 for row in detached if row[1] != 5000})
    expected = parts.source_rows("parts") + former
    missing = expected - parts.table_rows(spark, "parts")
    assert [row[1] for row in missing] == [2000]
    parts.command("snapshot redo", "parts")
    parts.command("run")
    assert parts.table_rows(spark, "parts") == expected
    assert "attached" not in parts.command("run")


def test_partitions_with_their_own_names_are_tables(spark: SparkSession, parts: Parts) -> None:
    parts.execute("CREATE PUBLICATION own FOR TABLE parts")
    parts.configure(publication="own", tables=["public.parts"])
    assert "publish_via_partition_root is off" in parts.command("run", code=2)
    parts.configure(tables=["public.parts_1", "public.parts_2"])
    parts.command("run")
    parts.execute(
        "UPDATE parts SET day = day + 31 WHERE day < '2024-01-20' AND id < 50",
        "DELETE FROM parts WHERE id % 7 = 0",
    )
    parts.command("run")
    parts.check_tables(spark, "parts_1", "parts_2")


def test_statements_that_move_partitions_are_quarantined(spark: SparkSession, parts: Parts) -> None:
    del spark
    parts.execute(INSTALLATION)
    parts.configure(ddl="event_trigger", tables=["public.parts"])
    parts.command("run")
    parts.execute("ALTER TABLE parts DETACH PARTITION parts_1")
    assert "quarantined: unread_ddl" in parts.command("run")
    shown = parts.command("quarantine list", "--output", "json")
    assert "rows of partitions" in shown
