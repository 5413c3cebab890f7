# SPDX-License-Identifier: Apache-2.0
"""The parser of statements: the action by the first words, the changes by the rest."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal

from changelane.ddl.changes import (
    AddIndex,
    Change,
    CreateDatabase,
    DropConstraint,
    DropDatabase,
    DropIndex,
    DropTable,
    Other,
    RenameTable,
    Statement,
    TruncateTable,
)
from changelane.ddl.parse_table import (
    alter_table,
    create_table,
    if_exists,
    if_not_exists,
    index_columns,
)
from changelane.ddl.tokenizer import MAX_TEXT_LENGTH, Cursor, UnknownSyntaxError, Word, tokenize
from changelane.schema import TableId

Dialect = Literal["mysql", "postgresql", "oracle"]

# Words between the verb and the noun, such as CREATE *UNIQUE* INDEX.
_ADJECTIVES: Final = frozenset(
    "OR REPLACE GLOBAL LOCAL PRIVATE TEMPORARY TEMP UNLOGGED FOREIGN EXTERNAL SHARDED DUPLICATED "
    "IMMUTABLE BLOCKCHAIN UNIQUE FULLTEXT SPATIAL VECTOR BITMAP MULTIVALUE ONLINE OFFLINE IGNORE "
    "COLUMNAR".split()
)
_ACTIONS: Final[dict[tuple[str, str], str]] = {
    ("CREATE", "TABLE"): "create",
    ("ALTER", "TABLE"): "alter",
    ("DROP", "TABLE"): "drop",
    ("DROP", "TABLES"): "drop",
    ("RENAME", "TABLE"): "rename",
    ("RENAME", "TABLES"): "rename",
    ("CREATE", "INDEX"): "create_index",
    ("DROP", "INDEX"): "drop_index",
    ("CREATE", "DATABASE"): "create_database",
    ("CREATE", "SCHEMA"): "create_database",
    ("DROP", "DATABASE"): "drop_database",
    ("DROP", "SCHEMA"): "drop_database",
}
# Objects whose bodies contain statements.
_ROUTINES: Final = frozenset(
    "PROCEDURE FUNCTION TRIGGER EVENT PACKAGE TYPE EDITIONABLE NONEDITIONABLE DEFINER AGGREGATE "
    "CONSTRAINT RULE".split()
)

# atomic and possessive, so that comments cause no backtracking
_HEAD: Final = re.compile(
    r"(?>[\s;]+|/\*(?!M?!).*?\*/|/\*M?!\d*|--[^\n]*\n|\#[^\n]*\n)*+(?P<head>.{0,200})", re.DOTALL
)
_HEAD_WORD: Final = re.compile(r"[A-Za-z_]+")


def parse(
    text: str, dialect: Dialect, default_table: TableId | None = None
) -> tuple[Statement, ...]:
    """Parse a text of one or more statements.

    The function never raises: a statement that cannot be parsed has no changes and a reason. The
    length of the text is limited, time and memory grow linearly with it, and nothing recurses.

    >>> statement, = parse("ALTER TABLE t RENAME COLUMN a TO b", "mysql", TableId("shop"))
    >>> statement.action, str(statement.table), statement.changes
    ('alter', 'shop.t', (RenameColumn(name='a', new_name='b'),))

    Args:
        text: The statements, separated by semicolons.
        dialect: The SQL dialect.
        default_table: Its database and schema complete the names of tables; statements without
            a table get all of it.
    """
    return _parse(text, dialect, default_table or TableId())


@lru_cache(maxsize=64)
def _parse(text: str, dialect: Dialect, default_table: TableId) -> tuple[Statement, ...]:
    try:
        sql, words = tokenize(text, dialect)
    except UnknownSyntaxError as error:
        head = _HEAD.match(text, 0, MAX_TEXT_LENGTH)
        return (Statement(_head_action(_head_words(head)), default_table, (), text, str(error)),)
    return tuple(
        _statement(sql, group, dialect, default_table)
        for group in _split_statements(words, dialect)
    ) or (Statement("other", default_table, (), text, "no statement"),)


def _head_words(head: re.Match[str] | None) -> list[str]:
    return [] if head is None else [m.group().upper() for m in _HEAD_WORD.finditer(head["head"])]


def _split_statements(words: Sequence[Word], dialect: Dialect) -> Iterator[Sequence[Word]]:
    start = 0
    for index, word in enumerate(words):
        if word.upper == ";":
            if index > start:
                if _noun([word.upper for word in words[start : start + 8]]) in _ROUTINES:
                    break
                yield words[start:index]
            start = index + 1
        elif word.upper == "/" and dialect == "oracle" and index == start:
            start = index + 1  # SQL*Plus: runs the previous statement
    if start < len(words):
        yield words[start:]


def _noun(words: Sequence[str]) -> str:
    for word in words[1:]:
        if word not in _ADJECTIVES:
            return word
    return ""


def _head_action(words: Sequence[str]) -> str:
    if not words:
        return "other"
    if words[0] == "TRUNCATE":
        return "truncate"
    return _ACTIONS.get((words[0], _noun(words)), "other")


def _statement(
    sql: str, words: Sequence[Word], dialect: Dialect, default_table: TableId
) -> Statement:
    text = sql[words[0].start : words[-1].end]
    action = _head_action([word.upper for word in words[:16]])
    if dialect == "oracle" and words[0].upper == "RENAME" and len(words) == 4:
        action = "rename"
    if action == "other":
        return Statement(action, default_table, (), text, "not a statement that changes a table")
    cursor = Cursor(sql, words, dialect, default_table)
    try:
        changes = tuple(_changes(cursor, action))
    except UnknownSyntaxError as error:
        table = default_table if cursor.first_table is None else cursor.first_table
        return Statement(action, table, (), text, str(error))
    table = default_table if cursor.first_table is None else cursor.first_table
    reason = None if changes else "the statement has no changes"
    return Statement(_refine_action(action, changes, dialect), table, changes, text, reason)


def _refine_action(action: str, changes: Sequence[Change], dialect: Dialect) -> str:
    """Return the action of an ALTER TABLE by its changes, if all of them are of one kind.

    As Canal does: "RENAME TABLE / ALTER…RENAME→RENAME; CREATE INDEX, ALTER ADD INDEX/UNIQUE→
    CINDEX; DROP INDEX / ALTER DROP INDEX/KEY/CONSTRAINT→DINDEX; other ALTER→ALTER".
    """
    # Other: options such as ALGORITHM=INPLACE
    kinds = {type(change) for change in changes} - {Other}
    if action != "alter" or not kinds:
        return action
    if kinds == {RenameTable}:
        return "rename"
    if kinds == {AddIndex}:
        return "create_index"
    if kinds <= ({DropIndex, DropConstraint} if dialect == "mysql" else {DropIndex}):
        return "drop_index"
    return action


def _changes(cursor: Cursor, action: str) -> Iterator[Change]:
    verb = cursor.next().upper
    adjectives: set[str] = set()
    while cursor.peek().upper in _ADJECTIVES:
        adjectives.add(cursor.next().upper)
    noun = cursor.peek().upper
    if action != "truncate" and (noun != "" and (verb, noun) in _ACTIONS):
        cursor.next()
    match action:
        case "create":
            temporary = bool(adjectives & {"TEMPORARY", "TEMP"})
            replaces = "REPLACE" in adjectives
            yield from create_table(cursor, temporary=temporary, replaces=replaces)
        case "alter":
            yield from alter_table(cursor)
        case "drop":
            yield from _drop_tables(cursor, temporary="TEMPORARY" in adjectives)
        case "rename":
            yield from _rename_tables(cursor)
        case "truncate":
            yield from _truncate(cursor)
        case "create_index":
            yield _create_index(cursor, unique="UNIQUE" in adjectives)
        case "drop_index":
            yield from _drop_index(cursor)
        case "create_database":
            yield _create_database(cursor)
        case "drop_database":
            yield from _drop_databases(cursor)
        case _:
            raise AssertionError(action)


def _drop_tables(cursor: Cursor, *, temporary: bool) -> Iterator[Change]:
    exists = if_exists(cursor)
    yield DropTable(cursor.table(), temporary, exists)
    while True:
        while not cursor.is_at_element_end:
            cursor.skip()  # CASCADE CONSTRAINTS, PURGE, WAIT 5
        if not cursor.take(","):
            break
        yield DropTable(cursor.table(), temporary, exists)


def _rename_tables(cursor: Cursor) -> Iterator[Change]:
    if_exists(cursor)
    while True:
        old = cursor.table()
        while not cursor.is_at("TO"):
            cursor.next()  # MariaDB: WAIT n, NOWAIT
        cursor.expect("TO")
        yield RenameTable(old, cursor.table())
        if not cursor.take(","):
            break
    if not cursor.is_at_end:
        raise UnknownSyntaxError("unknown words after a rename")


def _truncate(cursor: Cursor) -> Iterator[Change]:
    cursor.take("TABLE")
    while True:
        cursor.take("ONLY")
        yield TruncateTable(cursor.table())
        cursor.take("*")
        if not cursor.take(","):
            break
    if cursor.peek().upper in {"PARTITION", "SUBPARTITION"}:
        raise UnknownSyntaxError("a truncate of a partition")
    cursor.skip_all()  # RESTART IDENTITY CASCADE, DROP STORAGE


def _create_index(cursor: Cursor, *, unique: bool) -> Change:
    cursor.take("CONCURRENTLY")
    if_not_exists(cursor)
    name: str | None = None
    if not cursor.is_at("ON"):
        name = cursor.name()
        while cursor.take("."):
            name = cursor.name()
    while not cursor.is_at("ON"):
        cursor.next()  # USING BTREE
    cursor.expect("ON")
    cursor.take("ONLY")
    cursor.table()
    while not cursor.is_at("("):
        cursor.next()  # USING btree
    columns = index_columns(cursor)
    cursor.skip_all()
    return AddIndex(name, columns, unique)


def _drop_index(cursor: Cursor) -> Iterator[Change]:
    while cursor.peek().upper in {"CONCURRENTLY", "ONLINE"}:
        cursor.next()
    if_exists(cursor)
    while True:
        name = cursor.name()
        while cursor.take("."):
            name = cursor.name()
        yield DropIndex(name)
        if not cursor.take(","):
            break
    if cursor.take("ON"):
        cursor.table()
    cursor.skip_all()


def _database(cursor: Cursor) -> TableId:
    name = cursor.name()
    if cursor.dialect == "mysql":
        return TableId(name)
    if cursor.take("."):
        return TableId(name, cursor.name())
    return TableId(cursor.default_table.database, name)


def _create_database(cursor: Cursor) -> Change:
    if_not_exists(cursor)
    if cursor.is_at("AUTHORIZATION"):
        cursor.next()
    cursor.first_table = _database(cursor)
    cursor.skip_all()
    return CreateDatabase(cursor.first_table)


def _drop_databases(cursor: Cursor) -> Iterator[Change]:
    if_exists(cursor)
    while True:
        name = _database(cursor)
        cursor.first_table = cursor.first_table or name
        yield DropDatabase(name)
        if not cursor.take(","):
            break
    cursor.skip_all()
