# SPDX-License-Identifier: Apache-2.0
"""The partitions of tables of PostgreSQL, and how they became partitions."""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.tables import TREE, Relation, read_descendants

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

# CREATE TABLE ... PARTITION OF writes a table, its columns and its place in the tree at once.
# ATTACH PARTITION writes the place in another transaction than the table, or, in the same one, all
# columns again. No statement writes the system's columns, such as ctid (-1), again.
_ATTACHED: Final = """
SELECT t.root
FROM tree t JOIN pg_inherits i ON i.inhrelid = t.root
JOIN pg_attribute s ON s.attrelid = t.root AND s.attnum = -1
CROSS JOIN LATERAL (
  SELECT bool_and(a.cmin::text <> s.cmin::text) AS are_all FROM pg_attribute a
  WHERE a.attrelid = t.root AND a.attnum > 0 AND a.xmin::text = s.xmin::text
) AS rewritten
WHERE i.xmin::text <> s.xmin::text OR rewritten.are_all
GROUP BY t.root HAVING sum(pg_relation_size(t.oid)) > 0
"""


def read_partitions(
    connection: "Connection", relations: Collection[Relation], tables: Iterable[Relation]
) -> dict[str, dict[str, str]]:
    """Return the partitions of partitioned tables, of all levels, by their ids.

    Args:
        connection: The connection.
        relations: All relations of the database.
        tables: Some of them; tables without partitions are left out.
    """
    names = {relation.oid: relation.shown for relation in relations}
    roots = {table.oid: table.shown for table in tables if table.kind == "partitioned table"}
    if not roots:
        return {}
    partitions: dict[str, dict[str, str]] = {name: {} for name in roots.values()}
    with database_errors("the list of partitions"):
        for root, oid in read_descendants(connection, roots):
            if oid in names:  # else created since the list was read
                partitions[roots[root]][str(oid)] = names[oid]
    return partitions


def attached_partitions(connection: "Connection", numbers: Collection[str]) -> set[str]:
    """Return which of some partitions have had rows and were tables of their own before.

    Args:
        connection: The connection.
        numbers: The ids of the partitions.
    """
    # the size of a table needs no privilege, unlike its rows
    with database_errors("the check of the partitions"):
        rows = connection.execute(TREE + _ATTACHED, [[*map(int, numbers)]]).fetchall()
    return {str(oid) for (oid,) in rows}
