# SPDX-License-Identifier: Apache-2.0
"""Random transactions without an end, on the tables of :mod:`line_workloads`.

Rows with all types get each other's values, keys move, swap and rotate, a table is truncated, and
columns are added, dropped, renamed and widened, with few names, so that each is used again. Every
now and then all rows of a large transaction are inserted, changed, moved by one key, or deleted.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

import line_workloads as workloads

EVENTS: Final = "CREATE TABLE events (n int)"
"""A table without a key, in which a repeated change is a repeated row."""
KEYS: Final = 40
"""Keys are drawn from 1 to this number, so that transactions meet each other's rows."""
NAMES: Final = ("c1", "c2", "c3", "c4")
LARGE_PERIOD: Final = 200
"""One of so many transactions is a large one; the first one is."""
ALTERING_SHARE: Final = 0.15
"""The share of the first client's transactions that alter a table: each is a commit of its own."""
FIRST_KEY_OF_LARGE: Final = 100_000


class Product(NamedTuple):
    """The SQL of a database.

    Attributes:
        rows: Rows of ``kinds``.
        columns: The columns of ``kinds`` without the key.
        changes: Statements of one transaction each. Their fields: the keys ``a`` and ``b``, a new
            number ``n``, the column ``column`` of ``kinds``, all ``columns``, and a ``row``.
        large: The same, in turn, for ``first`` to ``last``.
        types: The types of ``altered`` and their largest values; each is widened to the next one
            of its group.
        widening: The statement that widens a column.
        altered: The query of the columns of ``altered`` and their types.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    changes: tuple[tuple[str, ...], ...]
    large: tuple[tuple[str, ...], ...]
    types: tuple[Mapping[str, str], ...]
    widening: str
    altered: str


_CHANGES: Final = (
    ("INSERT INTO kinds VALUES {row}",),
    ("UPDATE kinds SET number = {n} WHERE id = {a}",),  # TOAST is unchanged
    ("UPDATE kinds SET {column} = NULL WHERE id BETWEEN {a} AND {a} + 2",),
    ("UPDATE kinds SET id = {b} WHERE id = {a}",),
    ("INSERT INTO kinds SELECT {b}, {columns} FROM kinds WHERE id = {a}",),
    ("DELETE FROM kinds WHERE id = {a}",),
    ("DELETE FROM kinds WHERE id = {a}", "INSERT INTO kinds VALUES {row}"),
    ("UPDATE pairs SET b = 'y' WHERE a = {a}",),
    ("UPDATE pairs SET n = n + 1 WHERE a <= {b}",),
    ("DELETE FROM pairs WHERE a = {a}", "INSERT INTO pairs VALUES ({a}, 'x', {n})"),
    ("INSERT INTO pairs VALUES ({a}, 'x', 0)", "UPDATE pairs SET a = {b}, n = {n} WHERE a = {a}"),
    (
        "SAVEPOINT s",
        "UPDATE pairs SET n = 0 WHERE a <= {a}",
        "ROLLBACK TO SAVEPOINT s",
        "UPDATE pairs SET n = {n} WHERE a = {b}",
    ),
    ("TRUNCATE TABLE emptied", "INSERT INTO emptied VALUES ({a}, 'after'), ({n}, 'after')"),
    ("INSERT INTO emptied VALUES ({n}, 'v')", "UPDATE emptied SET v = 'w' WHERE id <= {a}"),
    ("INSERT INTO events VALUES ({n}), ({a})",),
)
_LARGE_CHANGES: Final = (
    ("UPDATE pairs SET n = n + 1 WHERE a >= {first}",),
    ("UPDATE pairs SET n = n + 1, b = 'z' WHERE a BETWEEN {first} AND {last} - 10",),
)

POSTGRES: Final = Product(
    workloads.POSTGRES_ROWS,
    tuple(workloads.POSTGRES_KINDS),
    (
        *_CHANGES,
        (
            (
                "UPDATE kinds SET {column} = other.{column} FROM kinds other "
                "WHERE kinds.id = {a} AND other.id = {b}"
            ),
        ),
        (
            "UPDATE pairs SET a = CASE a WHEN {a} THEN {b} ELSE {a} END WHERE a IN ({a}, {b})",
            "UPDATE pairs SET n = {n} WHERE a = {a}",
        ),
        (f"UPDATE pairs SET a = a % {KEYS} + 1 WHERE a BETWEEN 1 AND {KEYS}",),
        ("TRUNCATE TABLE emptied", "INSERT INTO emptied VALUES ({a}, '')", "TRUNCATE emptied"),
    ),
    (
        (
            "DELETE FROM pairs WHERE a >= {first}",
            "COPY pairs FROM PROGRAM $$seq {first} {last} | sed 's/$/\\tlarge\\t0/'$$",
        ),
        *_LARGE_CHANGES,
        ("UPDATE pairs SET a = a + 1 WHERE a >= {first}",),
    ),
    (
        {"smallint": "32767", "integer": "2147483647", "bigint": "9007199254740993"},
        {"real": "0.5", "double precision": "0.1"},
        {"text": "'text'"},
    ),
    "ALTER TABLE altered ALTER COLUMN {column} TYPE {type}",
    (
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'altered' ORDER BY ordinal_position"
    ),
)
MARIADB: Final = Product(
    workloads.MARIADB_ROWS,
    tuple(workloads.MARIADB_KINDS),
    (
        *_CHANGES,
        (
            (
                "UPDATE kinds JOIN kinds other ON other.id = {b} "
                "SET kinds.{column} = other.{column} WHERE kinds.id = {a}"
            ),
        ),
        (
            "UPDATE pairs SET a = -1 WHERE a = {a}",
            "UPDATE pairs SET a = {a} WHERE a = {b}",
            "UPDATE pairs SET a = {b} WHERE a = -1",
        ),
        (
            f"UPDATE pairs SET a = a + 1 WHERE a BETWEEN 1 AND {KEYS} ORDER BY a DESC",
            f"UPDATE pairs SET a = 1 WHERE a = {KEYS + 1}",
        ),
        ("REPLACE INTO pairs VALUES ({a}, 'x', {n}), ({b}, 'Ä', {n})",),
    ),
    (
        (
            "DELETE FROM pairs WHERE a >= {first}",
            "INSERT INTO pairs SELECT seq, 'large', 0 FROM seq_{first}_to_{last}",
        ),
        *_LARGE_CHANGES,
        ("UPDATE pairs SET a = a + 1 WHERE a >= {first} ORDER BY a DESC",),
    ),
    (
        {"smallint": "32767", "int": "2147483647", "bigint": "9007199254740993"},
        {"float": "0.5", "double": "0.1"},
        {"varchar(20)": "'text'", "varchar(300)": "REPEAT('text', 60)"},
    ),
    "ALTER TABLE altered MODIFY {column} {type}",
    (
        "SELECT column_name, IF(data_type = 'varchar', column_type, data_type) "
        "FROM information_schema.columns "
        "WHERE table_schema = DATABASE() AND table_name = 'altered' ORDER BY ordinal_position"
    ),
)


def transaction(
    product: Product,
    choose: Random,
    number: int,
    altered: Mapping[str, str],
    *,
    large_rows: int,
    altering_share: float = ALTERING_SHARE,
) -> list[str]:
    """Return the statements of a transaction, which may violate a key.

    Args:
        product: The database.
        choose: Draws the statements.
        number: The number of the transaction.
        altered: The present columns of the table ``altered``, which is not changed if there are
            none, with their types.
        large_rows: The number of rows of a large transaction.
        altering_share: The probability that the transaction alters that table.
    """
    if number % LARGE_PERIOD == 0:
        of_large = product.large[number // LARGE_PERIOD % len(product.large)]
        last = FIRST_KEY_OF_LARGE + large_rows - 1
        return [text.format(first=FIRST_KEY_OF_LARGE, last=last) for text in of_large]
    if altered and choose.random() < altering_share:
        return list(_altering(product, choose, number, altered))
    statements: list[str] = []
    for _ in range(choose.randrange(1, 4)):
        index = choose.randrange(len(product.rows))
        key = choose.randrange(1, KEYS + 1)
        values = {
            "a": key,
            "b": choose.randrange(1, KEYS + 1),
            "n": 1000 + number,
            "column": choose.choice(product.columns),
            "columns": ", ".join(product.columns),
            "row": product.rows[index].replace(f"({index + 1},", f"({key},", 1),
        }
        statements += [text.format(**values) for text in choose.choice(product.changes)]
    return statements


def _altering(
    product: Product, choose: Random, number: int, altered: Mapping[str, str]
) -> Iterator[str]:
    """Rows of the table ``altered`` before and after its columns change."""
    yield _row_of(product, choose, 2 * number, altered)
    changed = dict(altered)
    names = [name for name in altered if name in NAMES]
    free = [name for name in NAMES if name not in altered]
    wider = {name: kind for name in names if (kind := _wider(product, altered[name]))}
    can = {"add": free, "drop": names[1:], "rename": names and free, "widen": wider}
    match choose.choice([change for change, possible in can.items() if possible]):
        case "add":
            name = choose.choice(free)
            group = choose.choice(product.types)
            kind = next(iter(group))
            changed[name] = kind
            default = choose.choice(["", f" DEFAULT {group[kind]}"])
            yield f"ALTER TABLE altered ADD COLUMN {name} {kind}{default}"
        case "drop":
            name = choose.choice(names)
            del changed[name]
            yield f"ALTER TABLE altered DROP COLUMN {name}"
        case "rename":
            old, name = choose.choice(names), choose.choice(free)
            changed[name] = changed.pop(old)
            yield f"ALTER TABLE altered RENAME COLUMN {old} TO {name}"
        case _:
            name = choose.choice(list(wider))
            changed[name] = wider[name]
            yield product.widening.format(column=name, type=wider[name])
    yield _row_of(product, choose, 2 * number + 1, changed)
    column = choose.choice(list(changed.keys() - {"id"}))
    yield f"UPDATE altered SET {column} = NULL WHERE id % 3 = {choose.randrange(3)}"
    yield f"DELETE FROM altered WHERE id % 7 = {choose.randrange(7)}"


def _row_of(product: Product, choose: Random, key: int, altered: Mapping[str, str]) -> str:
    """Insert a row with the largest values of the types, or NULL."""
    largest = {kind: value for group in product.types for kind, value in group.items()}
    known = {name: largest[kind] for name, kind in altered.items() if kind in largest}
    values = {name: choose.choice([value, "NULL"]) for name, value in known.items()}
    values["id"] = str(1000 + key)
    return f"INSERT INTO altered ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _wider(product: Product, kind: str) -> str | None:
    for group in product.types:
        kinds = list(group)
        if kind in kinds[:-1]:
            return kinds[kinds.index(kind) + 1]
    return None
