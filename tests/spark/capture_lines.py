# SPDX-License-Identifier: Apache-2.0
"""Captured databases with a workload, and the comparison of their tables with those of a lake."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import line_workloads as workloads
import pytest
import random_changes
from mariadb_server import MariadbServer
from postgres_server import PostgresServer
from pyspark.sql import DataFrame, SparkSession

from changelane.capture.postgres.ddl_trigger import INSTALLATION
from changelane.cli.capture import started_capture
from changelane.pipeline.config import load


class Captured(NamedTuple):
    """A capture log of a database, and its tables at the end of the log.

    Attributes:
        first_rows: The number of rows of the first load.
    """

    log: Path
    database: str
    schema: str | None
    tables: dict[str, workloads.Rows]
    columns: workloads.Columns
    first_rows: int


def captured(server: Any, folder: Path, database: str, statements: Any, **source: Any) -> None:
    """Capture a database before and after the changes of its workload."""
    create, first, changes, execute = statements
    for statement in (*create, *first):
        execute(statement)
    options = {
        "host": server.host,
        "port": server.port,
        "database": database,
        "user": server.user,
        "password": "${PASSWORD_OF_TEST}",
        "segments": str(folder / "log"),
        # topics of Debezium that begin with the database would differ from Arcion's by dots only
        "topic_prefix": "dbz",
        "memory": "256m",
    }
    file = folder / "capture.yaml"
    sink = {"type": "delta", "path": str(folder / "unused")}
    file.write_text(json.dumps({"name": "capture", "source": options | source, "sink": sink}))
    pipeline = load(file, {"PASSWORD_OF_TEST": server.password})
    with started_capture(pipeline, str, is_until_now=True) as capture:
        capture.wait_until_now()
        for statement in changes:
            execute(statement)
        capture.wait_until_now()


@pytest.fixture(scope="module")
def mariadb(
    mariadb_server: MariadbServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Captured]:
    folder = tmp_path_factory.mktemp("mariadb")
    with (
        mariadb_server.new_database("line") as database,
        mariadb_server.connect(database) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET SESSION sql_mode = ''")
        statements = (
            workloads.MARIADB_CREATE,
            workloads.MARIADB_FIRST,
            workloads.MARIADB_CHANGES,
            cursor.execute,
        )
        names = [f"{database}.*"]
        captured(mariadb_server, folder, database, statements, type="mariadb", tables=names)
        tables = workloads.mariadb_rows(mariadb_server, database)
        columns = workloads.columns_of(workloads.MARIADB_KINDS)
        yield Captured(folder / "log", database, None, tables, columns, 53)


@pytest.fixture(scope="module")
def postgres(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Captured]:
    folder = tmp_path_factory.mktemp("postgres")
    with (
        postgres_server.new_database("line") as database,
        postgres_server.connect(database) as connection,
    ):
        statements = (
            workloads.POSTGRES_CREATE,
            workloads.POSTGRES_FIRST,
            workloads.POSTGRES_CHANGES,
            connection.execute,
        )
        connection.execute(INSTALLATION)
        source = {"type": "postgres", "tables": ["public.*"], "ddl": "event_trigger"}
        captured(postgres_server, folder, database, statements, **source)
        tables = workloads.postgres_rows(postgres_server, database)
        columns = workloads.columns_of(workloads.POSTGRES_KINDS)
        yield Captured(folder / "log", database, "public", tables, columns, 52)


# -- the comparison: values of one kind have one text


def _number(text: str) -> str:
    return str(Decimal({"true": "1", "false": "0"}.get(text, text)).normalize())


def _number_or_text(text: str) -> str:
    return _number(text) if re.fullmatch(r"-?[\d.]+(E-?\d+)?", text) else text


def _float(text: str) -> str:
    return repr(float(text.replace("Infinity", "inf")))


def _moment(text: str) -> str:
    moment = re.sub(r"(Z|[+]00(:00)?)$", "", text.replace("T", " "))
    return re.sub(r"[.]?0*$", "", moment) if "." in moment else moment


def _span(text: str) -> str:
    return re.sub(r"(?<=[PT\d])0[YMWDHS]|T(?=$)", "", re.sub(r"(?<![\d.])0[YMDHS]", "", text))


_TEXTS: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(
        "id a n extra tiny small medium number big huge price free flag yr".split(), _number
    ),
    **dict.fromkeys(random_changes.NAMES, _number_or_text),
    **dict.fromkeys(("ratio", "single"), _float),
    **dict.fromkeys(("moment", "instant", "clock"), _moment),
    "day": lambda text: text[:10],
    "code": str.rstrip,  # both databases remove the blanks of CHAR
    "span": _span,
    **dict.fromkeys(("numbers", "words"), lambda text: json.dumps(json.loads(text))),
    **dict.fromkeys(("raw", "image"), str.lower),
}
"""Column -> its text without the freedoms of its type; all others are compared as they are."""


def _rows_of(frame: DataFrame, table: str, columns: Sequence[str]) -> workloads.Rows:
    """Return a table of a lake as Spark writes its values."""
    types = dict(frame.dtypes)

    def text(name: str) -> str:
        if types[name] == "binary":
            return f"lower(hex(`{name}`))"
        return f"to_json(`{name}`)" if "array" in types[name] else f"CAST(`{name}` AS STRING)"

    rows = frame.selectExpr(*map(text, columns)).collect()
    return workloads.by_key(table, [tuple(row) for row in rows])


def differences(spark: SparkSession, lake: Path, source: Captured) -> dict[str, set[str]]:
    """Compare a lake of Delta tables with a database; see :func:`differences_of`."""

    def read(table: str) -> DataFrame:
        (folder,) = (
            path
            for path in (lake / "tables").iterdir()
            if path.name.partition("~")[0].rpartition(".")[2] == table
        )
        return spark.sql(f"SELECT * FROM delta.`{folder}`")

    return differences_of(read, source.tables, source.columns)


def differences_of(
    read: Callable[[str], DataFrame],
    tables: Mapping[str, workloads.Rows],
    columns_of_tables: workloads.Columns,
) -> dict[str, set[str]]:
    """Return the keys of rows that differ from the database, by table and column.

    A row that only one side has differs in the column ``*``.

    Args:
        read: Returns a table of the lake.
        tables: The tables of the database.
        columns_of_tables: Their columns.
    """
    found: dict[str, set[str]] = {}
    for table, expected in tables.items():
        columns = columns_of_tables[table]
        rows = _rows_of(read(table), table, columns)
        if keys := rows.keys() ^ expected.keys():
            found[f"{table}.*"] = keys
        for key in rows.keys() & expected.keys():
            for name, one, other in zip(columns, rows[key], expected[key], strict=True):
                text = _TEXTS.get(name, str)
                values = [value if value is None else text(value) for value in (one, other)]
                if values[0] != values[1]:
                    found.setdefault(f"{table}.{name}", set()).add(key)
    return found
