# SPDX-License-Identifier: Apache-2.0
"""Workloads on real databases, and their tables as texts, by SQL of the databases themselves.

``kinds`` has the common types with their limits, ``pairs`` rows whose keys move and swap,
``emptied`` a truncate, ``altered`` statements that add, rename, drop and widen columns.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mariadb_server import MariadbServer
from postgres_server import PostgresServer

Rows = dict[str, tuple[str | None, ...]]
"""The values of rows as text, by the text of the key."""
Columns = dict[str, tuple[str, ...]]
"""The columns of tables, those of the key first."""

MARIADB_KINDS: Final[Mapping[str, str]] = {
    "tiny": "tinyint",
    "small": "smallint unsigned",
    "medium": "mediumint",
    "number": "int unsigned",
    "big": "bigint",
    "huge": "bigint unsigned",
    "price": "decimal(20,4)",
    "ratio": "double",
    "single": "float",
    "flag": "bool",
    "name": "varchar(40) CHARACTER SET utf8mb4",
    "code": "char(4)",
    "body": "text",
    "raw": "varbinary(20)",
    "image": "blob",
    "day": "date",
    "moment": "datetime(6)",
    "instant": "timestamp(6) NULL",
    "clock": "time(3)",
    "yr": "year",
    "size": "enum('s','m','l')",
    "tags": "set('a','b','c')",
    "doc": "json",
    "bits": "bit(10)",
}
MARIADB_ROWS: Final = (
    (
        "(1, -128, 0, -8388608, 0, -9223372036854775808, 0, -9999999999999999.9999, -1.5e300, "
        "-0.5, 0, '', '', '', '', '', '1000-01-01', '1000-01-01 00:00:00', '1970-01-01 00:00:01', "
        "'-838:59:59', 1901, 's', '', '{}', b'0')"
    ),
    (
        "(2, 127, 65535, 8388607, 4294967295, 9223372036854775807, 18446744073709551615, "
        "9999999999999999.9999, 1e-300, 0.25, 1, '\U0001f600 \u00e9 \\'\"\\\\ \n\t', 'abcd', "
        "REPEAT('\u00df\u6f22', 5000), X'00FF80', X'DEADBEEF', '9999-12-31', "
        "'9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '838:59:59.999', 2155, 'l', "
        "'a,c', '{\"a\": [1, 2.50, null, \"x\"]}', b'1111111111')"
    ),
    "(3, " + ", ".join(["NULL"] * 24) + ")",
    (
        "(4, 1, 2, 3, 4, 5, 6, 12.3400, 0.1, 1.5, 1, 'x', 'y ', ' z ', ' ', 'w', '2024-02-29', "
        "'2024-02-29 12:00:00', '2024-02-29 12:00:00', '12:34:56.780', 2024, 'm', 'b', '[]', "
        "b'101')"
    ),
    (
        "(5, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, '5', '5', '5', '5', '5', '2024-10-27', "
        "'2024-10-27 02:30:00.5', '2024-10-27 01:30:00.000001', '00:00:00', 2000, 'm', 'a,b,c', "
        "'null', b'1')"
    ),
)
MARIADB_CREATE: Final = (
    "CREATE TABLE kinds (id int PRIMARY KEY, "
    + ", ".join(f"{name} {kind}" for name, kind in MARIADB_KINDS.items())
    + ")",
    (
        "CREATE TABLE pairs (a int, b varchar(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, "
        "n int, PRIMARY KEY (a, b))"
    ),
    "CREATE TABLE emptied (id int PRIMARY KEY, v varchar(10))",
    "CREATE TABLE altered (id int PRIMARY KEY, note varchar(20), n int, old int)",
)
MARIADB_FIRST: Final = (
    f"INSERT INTO kinds VALUES {', '.join(MARIADB_ROWS)}",
    "INSERT INTO pairs SELECT seq, IF(seq MOD 2, 'x', 'Ä'), seq FROM seq_1_to_40",
    "INSERT INTO emptied VALUES (1, 'gone'), (2, 'gone')",
    "INSERT INTO altered SELECT seq, CONCAT('n', seq), seq, seq FROM seq_1_to_6",
)
MARIADB_CHANGES: Final = (
    f"INSERT INTO kinds VALUES {MARIADB_ROWS[1].replace('(2,', '(6,', 1)}",
    (
        "UPDATE kinds SET tiny = NULL, name = NULL, body = NULL, price = NULL, raw = NULL, "
        "moment = NULL, doc = NULL WHERE id = 4"
    ),
    "UPDATE kinds SET " + ", ".join(f"{name} = NULL" for name in MARIADB_KINDS) + " WHERE id = 1",
    "UPDATE kinds SET tiny = 7, name = 'was null', moment = '2001-02-03 04:05:06.789' WHERE id = 3",
    "DELETE FROM kinds WHERE id = 2",
    "UPDATE kinds SET yr = 0 WHERE id = 5",  # the driver of the first load cannot read it
    "BEGIN",
    "UPDATE pairs SET a = -1 WHERE a = 1",
    "UPDATE pairs SET a = 1, b = 'x' WHERE a = 3",
    "UPDATE pairs SET a = 3 WHERE a = -1",
    "COMMIT",
    "UPDATE pairs SET a = a + 1000 WHERE a BETWEEN 10 AND 15",
    "UPDATE pairs SET b = 'y' WHERE a > 1012",
    "REPLACE INTO pairs VALUES (20, 'Ä', -20), (41, 'new', 41)",
    "BEGIN",
    "DELETE FROM pairs WHERE a = 21",
    "INSERT INTO pairs VALUES (21, 'x', 2100)",
    "COMMIT",
    "BEGIN",
    "UPDATE pairs SET n = 0",
    "ROLLBACK",
    "UPDATE pairs SET n = n + 1",
    "DELETE FROM pairs WHERE a BETWEEN 30 AND 35",
    "TRUNCATE TABLE emptied",
    "INSERT INTO emptied VALUES (2, 'two'), (3, 'three')",
    "UPDATE altered SET note = 'before' WHERE id = 1",
    "ALTER TABLE altered ADD COLUMN extra int DEFAULT 7",
    "INSERT INTO altered VALUES (7, 'n7', 7, 7, NULL)",
    "ALTER TABLE altered RENAME COLUMN note TO remark",
    "UPDATE altered SET remark = 'after' WHERE id = 2",
    "ALTER TABLE altered MODIFY n bigint",
    "ALTER TABLE altered DROP COLUMN old",
    "INSERT INTO altered VALUES (8, 'n8', 9007199254740993, 8)",
    "DELETE FROM altered WHERE id = 3",
    "UPDATE altered SET remark = CONCAT(remark, '.'), n = n + 1, extra = id",
)

POSTGRES_KINDS: Final[Mapping[str, str]] = {
    "small": "smallint",
    "number": "int",
    "big": "bigint",
    "price": "numeric(20,4)",
    "free": "numeric",
    "ratio": "double precision",
    "single": "real",
    "flag": "boolean",
    "name": "varchar(40)",
    "code": "char(4)",
    "body": "text",
    "raw": "bytea",
    "day": "date",
    "moment": "timestamp",
    "instant": "timestamptz",
    "clock": "time",
    "span": "interval",
    "uid": "uuid",
    "doc": "jsonb",
    "text_doc": "json",
    "numbers": "int[]",
    "words": "text[]",
    "mood": "mood",
    "address": "inet",
    "bits": "bit(10)",
}
POSTGRES_ROWS: Final = (
    (
        "(1, -32768, -2147483648, -9223372036854775808, -9999999999999999.9999, -1e-20, "
        "'-Infinity', -0.5, false, '', '', '', '', '0001-01-01', '0001-01-01', "
        "'0001-01-01 00:00:00+00', '00:00', '-1 year', "
        "'00000000-0000-0000-0000-000000000000', '{}', '{}', '{}', '{}', 'ok', '0.0.0.0', "
        "B'0000000000')"
    ),
    (
        "(2, 32767, 2147483647, 9223372036854775807, 9999999999999999.9999, "
        "12345678901234567890.123456789, 'NaN', 0.25, true, U&'\\+01f600 \u00e9 ''\"\\\\', 'abcd', "
        "repeat(U&'\\00df\\6f22', 5000), '\\x00ff80', '9999-12-31', '9999-12-31 23:59:59.999999', "
        "'9999-12-31 23:59:59.999999+00', '23:59:59.999999', '1 mon 2 days 03:04:05.6', "
        "'ffffffff-ffff-ffff-ffff-ffffffffffff', '{\"a\": [1, 2.50, null, \"x\"]}', '{\"b\":  1}', "
        "'{1,NULL,-3}', '{a,\"b,\\\"c\",NULL}', 'bad', '10.0.0.0/8', B'1111111111')"
    ),
    "(3, " + ", ".join(["NULL"] * 25) + ")",
    (
        "(4, 1, 2, 3, 12.34, 1.50, 0.1, 1.5, true, 'x', 'y', ' z ', 'w', '2024-02-29', "
        "'2024-02-29 12:00:00.5', '2024-10-27 03:30:00.000001+02', '12:34:56.78', '1 day', "
        "'12345678-1234-5678-1234-567812345678', '[]', '[1]', '{5}', '{x}', 'ok', '::1', "
        "B'0000000101')"
    ),
)
POSTGRES_CREATE: Final = (
    "CREATE TYPE mood AS ENUM ('ok', 'bad')",
    "CREATE TABLE kinds (id int PRIMARY KEY, "
    + ", ".join(f"{name} {kind}" for name, kind in POSTGRES_KINDS.items())
    + ")",
    "ALTER TABLE kinds ALTER COLUMN body SET STORAGE EXTERNAL",
    "CREATE TABLE pairs (a int, b text, n int, PRIMARY KEY (a, b) DEFERRABLE INITIALLY DEFERRED)",
    "ALTER TABLE pairs REPLICA IDENTITY FULL",
    "CREATE TABLE emptied (id int PRIMARY KEY, v text)",
    "CREATE TABLE altered (id int PRIMARY KEY, note text, n int, old int)",
    "ALTER TABLE altered REPLICA IDENTITY FULL",
)
POSTGRES_FIRST: Final = (
    f"INSERT INTO kinds VALUES {', '.join(POSTGRES_ROWS)}",
    (
        "INSERT INTO pairs SELECT i, CASE i % 2 WHEN 1 THEN 'x' ELSE 'Ä' END, i "
        "FROM generate_series(1, 40) i"
    ),
    "INSERT INTO emptied VALUES (1, 'gone'), (2, 'gone')",
    "INSERT INTO altered SELECT i, 'n' || i, i, i FROM generate_series(1, 6) i",
)
POSTGRES_CHANGES: Final = (
    f"INSERT INTO kinds VALUES {POSTGRES_ROWS[1].replace('(2,', '(6,', 1)}",
    "UPDATE kinds SET number = 0 WHERE id = 2",  # body is TOAST and unchanged
    "UPDATE kinds SET id = 12 WHERE id = 6",
    (
        "UPDATE kinds SET small = NULL, name = NULL, body = NULL, price = NULL, raw = NULL, "
        "moment = NULL, doc = NULL, numbers = NULL WHERE id = 4"
    ),
    "UPDATE kinds SET " + ", ".join(f"{name} = NULL" for name in POSTGRES_KINDS) + " WHERE id = 1",
    "UPDATE kinds SET small = 7, name = 'was null', moment = '2001-02-03 04:05:06.7' WHERE id = 3",
    "BEGIN",
    "UPDATE pairs SET a = CASE a WHEN 1 THEN 3 ELSE 1 END WHERE a IN (1, 3)",
    "COMMIT",
    "UPDATE pairs SET a = a + 1000 WHERE a BETWEEN 10 AND 15",
    "UPDATE pairs SET b = 'y' WHERE a > 1012",
    "BEGIN",
    "DELETE FROM pairs WHERE a = 21",
    "INSERT INTO pairs VALUES (21, 'x', 2100)",
    "SAVEPOINT s",
    "UPDATE pairs SET n = 0",
    "ROLLBACK TO SAVEPOINT s",
    "COMMIT",
    "UPDATE pairs SET n = n + 1",
    "DELETE FROM pairs WHERE a BETWEEN 30 AND 35",
    "TRUNCATE emptied",
    "INSERT INTO emptied VALUES (2, 'two'), (3, 'three')",
    "UPDATE altered SET note = 'before' WHERE id = 1",
    "ALTER TABLE altered ADD COLUMN extra int DEFAULT 7",
    "INSERT INTO altered VALUES (7, 'n7', 7, 7, NULL)",
    "ALTER TABLE altered RENAME COLUMN note TO remark",
    "UPDATE altered SET remark = 'after' WHERE id = 2",
    "ALTER TABLE altered ALTER COLUMN n TYPE bigint",
    "ALTER TABLE altered DROP COLUMN old",
    "INSERT INTO altered VALUES (8, 'n8', 9007199254740993, 8)",
    "DELETE FROM altered WHERE id = 3",
    "UPDATE altered SET remark = remark || '.', n = n + 1, extra = id",
)
OTHER_COLUMNS: Final = {
    "pairs": ("a", "b", "n"),
    "emptied": ("id", "v"),
    "altered": ("id", "remark", "n", "extra"),
}
KEYS: Final = {"kinds": 1, "pairs": 2, "emptied": 1, "altered": 1}
"""The number of key columns, which are the first ones."""


def by_key(table: str, rows: list[tuple[Any, ...]]) -> Rows:
    """Return rows by their keys; two rows of a key are an error."""
    keyed = {" ".join(map(str, row[: KEYS[table]])): tuple(row) for row in rows}
    assert len(keyed) == len(rows), f"{table} has two rows of a key"
    return keyed


def columns_of(kinds: Mapping[str, str]) -> Columns:
    """Return the columns of each table, those of the key first."""
    return {"kinds": ("id", *kinds), **OTHER_COLUMNS}


def mariadb_rows(
    server: MariadbServer, database: str, columns: Columns | None = None
) -> dict[str, Rows]:
    """Return the tables as MariaDB writes their values; *columns* are those after the changes."""

    def text(name: str) -> str:
        kind = MARIADB_KINDS.get(name, "")
        if kind.startswith(("varbinary", "blob")):
            return f"LOWER(HEX({name}))"
        return f"LPAD(BIN({name}), 10, '0')" if kind.startswith("bit") else f"CAST({name} AS CHAR)"

    columns = columns or columns_of(MARIADB_KINDS)
    return _tables(columns, lambda sql: server.run(sql, database=database), text)


def postgres_rows(
    server: PostgresServer, database: str, columns: Columns | None = None
) -> dict[str, Rows]:
    """Return the tables as PostgreSQL writes their values; *columns* as for MariaDB."""

    def text(name: str) -> str:
        match POSTGRES_KINDS.get(name):
            case "bytea":
                return f"encode({name}, 'hex')"
            case "int[]" | "text[]":
                return f"array_to_json({name})::text"
            case "inet":
                return f"trim('\"' FROM to_json({name})::text)"
            case _:
                return f"{name}::text"

    with server.connect(database) as connection:
        connection.execute("SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'")
        columns = columns or columns_of(POSTGRES_KINDS)
        return _tables(columns, lambda sql: connection.execute(sql).fetchall(), text)


def _tables(
    columns_of_tables: Columns,
    run: Callable[[str], list[tuple[Any, ...]]],
    text: Callable[[str], str],
) -> dict[str, Rows]:
    return {
        table: by_key(table, run(f"SELECT {', '.join(map(text, columns))} FROM {table}"))
        for table, columns in columns_of_tables.items()
    }
