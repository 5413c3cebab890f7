# SPDX-License-Identifier: Apache-2.0
"""How tables of a real PostgreSQL became partitions, as its catalog shows it."""

from collections.abc import Iterator

import pytest
from postgres_server import PostgresServer
from postgres_source import Source, new_source

from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.partitions import attached_partitions, read_partitions
from changelane.capture.postgres.tables import read_relations, selection_of


@pytest.fixture
def source(postgres_server: PostgresServer) -> Iterator[Source]:
    with new_source(postgres_server) as source:
        yield source


def partitions(source: Source) -> dict[str, str]:
    """The partitions of the only partitioned table, by their ids."""
    with connect(source.login) as connection:
        relations = read_relations(connection)
        tables = selection_of(relations, ["public.*"]).tables
        (found,) = read_partitions(connection, relations, tables).values()
    return found


def attached(source: Source) -> set[str]:
    found = partitions(source)
    with connect(source.login) as connection:
        return {found[number] for number in attached_partitions(connection, found)}


def test_partitions_that_were_tables_with_rows_are_found(source: Source) -> None:
    columns = "(id int, v int DEFAULT 7, d text DEFAULT 'x', PRIMARY KEY (id))"
    source.run(
        f"CREATE TABLE root {columns} PARTITION BY RANGE (id)",
        "CREATE TABLE made PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "BEGIN",
        "CREATE TABLE made_too PARTITION OF root FOR VALUES FROM (10) TO (20)",
        "INSERT INTO root VALUES (11)",
        "COMMIT",
        f"CREATE TABLE empty {columns}",
        "ALTER TABLE root ATTACH PARTITION empty FOR VALUES FROM (20) TO (30)",
        f"CREATE TABLE late {columns}",
        "INSERT INTO late VALUES (31)",
        "ALTER TABLE root ATTACH PARTITION late FOR VALUES FROM (30) TO (40)",
        "BEGIN",
        f"CREATE TABLE at_once {columns}",
        "INSERT INTO at_once VALUES (41)",
        "ALTER TABLE root ATTACH PARTITION at_once FOR VALUES FROM (40) TO (50)",
        "COMMIT",
        "CREATE TABLE middle PARTITION OF root FOR VALUES FROM (50) TO (60) "
        "PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF middle FOR VALUES FROM (50) TO (55)",
        f"CREATE TABLE tree {columns} PARTITION BY RANGE (id)",
        "CREATE TABLE tree_leaf PARTITION OF tree FOR VALUES FROM (60) TO (70)",
        "INSERT INTO tree VALUES (61)",
        "ALTER TABLE root ATTACH PARTITION tree FOR VALUES FROM (60) TO (70)",
        "INSERT INTO root VALUES (1), (51)",
    )
    names = "made made_too empty late at_once middle leaf tree tree_leaf".split()
    assert sorted(partitions(source).values()) == sorted(f"public.{name}" for name in names)
    assert attached(source) == {"public.late", "public.at_once", "public.tree"}
    source.run(
        "ALTER TABLE root ADD COLUMN more int DEFAULT 5",
        "ALTER TABLE root ALTER COLUMN v SET NOT NULL",
        "ALTER TABLE root DETACH PARTITION late",
        "ALTER TABLE root DETACH PARTITION made",
        "ALTER TABLE root ATTACH PARTITION made FOR VALUES FROM (0) TO (10)",
        "VACUUM FREEZE",
    )
    assert attached(source) == {"public.made", "public.at_once", "public.tree"}
    assert "public.late" not in partitions(source).values()
