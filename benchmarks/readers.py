# SPDX-License-Identifier: Apache-2.0
"""The rows of tables by DuckDB, a reader that takes no part in any measurement."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import duckdb
import orders
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb_extensions import import_extension

_CHUNK: Final = 200_000
_DUCKDB: Final = {"int64": "BIGINT", "int32": "INTEGER", "float64": "DOUBLE", "string": "VARCHAR"}
_ARROW: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "string": pa.string(),
}


def columns(prefix: str = "") -> str:
    """Return the columns of orders as SQL, each with its type."""
    return ", ".join(
        f"CAST({prefix}{name} AS {_DUCKDB[kind]}) AS {name}" for name, kind in orders.TYPES.items()
    )


def _fields() -> str:
    return ", ".join(f"{name}: '{_DUCKDB[kind]}'" for name, kind in orders.TYPES.items())


def connect() -> Any:
    """Return a connection that reads Delta and Iceberg tables."""
    connection = duckdb.connect()
    for name in ("avro", "iceberg", "delta"):
        import_extension(name)
        connection.load_extension(name)
    return connection


def table(kind: str, folder: Path) -> str:
    """Return the SQL that reads the rows of a table.

    Args:
        kind: ``delta``, ``iceberg``, or ``parquet`` or ``json`` (a folder of files).
        folder: The folder of the table.
    """
    match kind:
        case "delta":
            source = f"delta_scan('{folder}')"
        case "iceberg":
            source = f"iceberg_scan('{_metadata(folder)}')"
        case "json":
            source = f"read_json('{folder}/*', format='newline_delimited', columns={{{_fields()}}})"
        case _:
            source = f"read_parquet('{folder}/**/*.parquet')"
    return f"SELECT {columns()} FROM {source}"  # noqa: S608 - names of this module


def _metadata(folder: Path) -> Path:
    """Return the newest metadata of an Iceberg table in a Hadoop catalog."""
    newest = (folder / "metadata" / "version-hint.text").read_text().strip()
    return folder / "metadata" / f"v{newest}.metadata.json"


def json_lines(pattern: Path) -> str:
    """Return the SQL that reads the images after the changes of files of debezium-json."""
    fields = ", ".join(f"{name} {_DUCKDB[kind]}" for name, kind in orders.TYPES.items())
    return (
        f"SELECT {columns('after.')} FROM read_json('{pattern}', format='newline_delimited', "  # noqa: S608
        f"columns={{after: 'STRUCT({fields})'}})"
    )


def totals(connection: Any, rows: str) -> tuple[int, int]:
    """Return the number of rows and the sum of the hashes of whole rows.

    Args:
        connection: A connection of :func:`connect`.
        rows: The SQL that reads the rows.
    """
    names = ", ".join(orders.TYPES)
    query = f"SELECT count(*), sum(CAST(hash({names}) AS HUGEINT)) FROM ({rows})"  # noqa: S608
    count, checksum = connection.execute(query).fetchone()
    return count, int(checksum or 0)


def store(rows: Iterable[orders.Row], path: Path) -> Path:
    """Write rows to a Parquet file of a folder; return the folder."""
    path.mkdir(parents=True)
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in orders.TYPES.items()])
    with pq.ParquetWriter(path / "rows.parquet", schema) as writer:
        chunk: list[orders.Row] = []
        for row in rows:
            chunk.append(row)
            if len(chunk) == _CHUNK:
                writer.write_table(pa.Table.from_pylist(chunk, schema))
                chunk = []
        writer.write_table(pa.Table.from_pylist(chunk, schema))
    return path


def check_equal(connection: Any, name: str, rows: str, expected: str) -> int:
    """Compare two tables row by row; return the number of rows.

    Raises:
        SystemExit: They differ.
    """
    # each table is read once, because deletes of Iceberg take long to apply
    for table_name, query in (("found", rows), ("expected", expected)):
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {table_name} AS {query}")
    differences = {
        what: connection.execute(
            f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})"  # noqa: S608
        ).fetchone()[0]
        for what, one, other in (
            ("missing", "expected", "found"),
            ("unexpected", "found", "expected"),
        )
    }
    if any(differences.values()):
        raise SystemExit(f"{name} has other rows than the messages: {differences}")
    return int(connection.execute("SELECT count(*) FROM found").fetchone()[0])
