# SPDX-License-Identifier: Apache-2.0
"""The parser of CREATE TABLE and ALTER TABLE."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import UNSET

from changelane.ddl.changes import (
    AddColumn,
    AddIndex,
    Change,
    ColumnChange,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropPrimaryKey,
    ModifyColumn,
    Other,
    RenameColumn,
    RenameIndex,
    RenameTable,
    SetPrimaryKey,
)
from changelane.ddl.parse_column import (
    Definition,
    default_nullable,
    definition,
    expression,
    type_text,
)
from changelane.ddl.tokenizer import Cursor, UnknownSyntaxError
from changelane.schema import Column, TableId
from changelane.sql_types import logical_type

_INDEX_WORDS: Final = frozenset({"INDEX", "KEY", "FULLTEXT", "SPATIAL", "VECTOR"})


def if_exists(cursor: Cursor) -> bool:
    """Move behind IF EXISTS."""
    return cursor.take("IF", "EXISTS")


def if_not_exists(cursor: Cursor) -> bool:
    """Move behind IF NOT EXISTS."""
    return cursor.take("IF", "NOT", "EXISTS")


# -- keys and indexes --------------------------------------------------------------------------


def index_columns(cursor: Cursor) -> tuple[str, ...] | None:
    """Return the columns of a list such as ``(a(10) DESC, b)``; ``None`` if one is computed."""
    cursor.expect("(")
    names: list[str] = []
    is_computed = False
    while True:
        if cursor.is_at("(") or (cursor.peek(1).upper == "(" and cursor.peek(2).kind != "number"):
            is_computed = True
        else:
            names.append(cursor.name())
        cursor.skip_element()
        if not cursor.take(","):
            break
    cursor.expect(")")
    return None if is_computed else tuple(names)


_WITHOUT_COLUMNS: Final = (
    ("FOREIGN", "KEY"),
    ("CHECK",),
    ("EXCLUDE",),
    ("PERIOD", "FOR"),
    ("SUPPLEMENTAL", "LOG"),
)


def constraint(cursor: Cursor, start: int) -> ColumnChange | None:
    """Parse a key, index or constraint; ``None`` if a column definition is next.

    Args:
        cursor: The cursor before it.
        start: The index in the text at which the action begins.
    """
    name: str | None = None
    if cursor.take("CONSTRAINT"):
        if cursor.peek().upper not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK"}:
            if_not_exists(cursor)
            name = cursor.name()
        if cursor.peek().upper not in {"PRIMARY", "UNIQUE", "FOREIGN", "CHECK", "EXCLUDE"}:
            raise UnknownSyntaxError("unknown constraint")
    change: ColumnChange
    if cursor.take("PRIMARY", "KEY"):
        change = SetPrimaryKey(_key_columns(cursor))
    elif cursor.take("UNIQUE"):
        _ = cursor.take("KEY") or cursor.take("INDEX")
        change = _index(cursor, name, unique=True)
    elif cursor.dialect == "mysql" and cursor.peek().upper in _INDEX_WORDS:
        if cursor.next().upper not in {"INDEX", "KEY"}:
            _ = cursor.take("KEY") or cursor.take("INDEX")
        change = _index(cursor, name, unique=False)
    elif any(cursor.is_at(*words) for words in _WITHOUT_COLUMNS):
        change = Other("")
    else:
        return None
    cursor.skip_element()
    return Other(cursor.text_from(start)) if isinstance(change, Other) else change


def _key_columns(cursor: Cursor) -> tuple[str, ...]:
    if cursor.take("USING", "INDEX"):
        raise UnknownSyntaxError("a key is given by the name of an index")
    while not cursor.is_at_end and not cursor.is_at("("):
        cursor.next()  # MySQL: USING BTREE, or a name that MySQL ignores
    columns = index_columns(cursor)
    if columns is None:
        raise UnknownSyntaxError("a key contains expressions")
    return columns


def _index(cursor: Cursor, name: str | None, *, unique: bool) -> AddIndex:
    if_not_exists(cursor)
    if not cursor.is_at("(") and not cursor.is_at("USING"):
        if cursor.take("NULLS"):
            cursor.take("NOT")
            cursor.expect("DISTINCT")
        else:
            name = cursor.name()
    if cursor.take("USING"):
        if cursor.take("INDEX"):
            return AddIndex(name, None, unique)
        cursor.name()
    return AddIndex(name, index_columns(cursor), unique)


# -- CREATE TABLE ------------------------------------------------------------------------------


def create_table(cursor: Cursor, *, temporary: bool, replaces: bool) -> Iterator[Change]:
    """Parse the words after CREATE TABLE."""
    exists = if_not_exists(cursor)
    table = cursor.table()
    columns: list[Column] = []
    defaults: list[tuple[str, str]] = []
    key: tuple[str, ...] = ()
    like: TableId | None = None
    indexes: list[Change] = []
    is_partial = False
    if cursor.take("LIKE"):
        like = _referenced_table(cursor)
    elif cursor.is_at("(") and not cursor.is_at("(", "SELECT"):
        cursor.next()
        while not cursor.take(")"):
            if cursor.take("LIKE"):
                like = _referenced_table(cursor)
                cursor.skip_element()
            elif (parsed_constraint := constraint(cursor, cursor.peek().start)) is not None:
                if isinstance(parsed_constraint, SetPrimaryKey):
                    key = parsed_constraint.columns
                else:
                    indexes.append(parsed_constraint)
            else:
                parsed_column = definition(cursor, cursor.name())
                key = (parsed_column.name,) if parsed_column.is_key else key
                if parsed_column.is_unique:
                    indexes.append(AddIndex(None, (parsed_column.name,), unique=True))
                if isinstance(parsed_column.default, str):
                    defaults.append((parsed_column.name, parsed_column.default))
                columns.append(parsed_column.column(cursor.dialect))
            if not cursor.take(",") and not cursor.is_at(")"):
                raise UnknownSyntaxError("a list is not closed")
    else:
        is_partial = True
    while not cursor.is_at_end:
        # AS SELECT, PARTITION OF, INHERITS, OF type add columns that the text does not list
        is_partial |= cursor.peek().upper in {"AS", "SELECT", "INHERITS", "OF", "VALUES", "TABLE"}
        if cursor.is_at(")"):
            raise UnknownSyntaxError("a list is not opened")
        cursor.skip()
    described = tuple(_not_null(column) if column.name in key else column for column in columns)
    has_columns = bool(described) or like is not None
    yield CreateTable(
        table, described, key, tuple(defaults), like, is_partial or not has_columns,
        temporary, exists, replaces,
    )  # fmt: skip
    yield from indexes


def _referenced_table(cursor: Cursor) -> TableId:
    first_table = cursor.first_table
    table = cursor.table()
    cursor.first_table = first_table
    return table


def _not_null(column: Column) -> Column:
    return Column(
        column.name, column.type, column.source_type, False, column.generated, column.default  # noqa: FBT003
    )  # fmt: skip


# -- ALTER TABLE -------------------------------------------------------------------------------


def alter_table(cursor: Cursor) -> Iterator[Change]:
    """Parse the words after ALTER TABLE."""
    if_exists(cursor)
    cursor.take("ONLY")
    table = cursor.table()
    cursor.take("*")
    if cursor.take("WAIT"):
        cursor.next()
    while not cursor.is_at_end:
        yield from _action(cursor, table)
        # Oracle has no separator between actions
        is_separated = cursor.take(",") or cursor.is_at_end
        if not is_separated and cursor.dialect != "oracle":
            raise UnknownSyntaxError("a comma between actions is missing")


def _action(cursor: Cursor, table: TableId) -> Iterator[Change]:
    start = cursor.peek().start
    word = cursor.next().upper
    if word in _MOVES and cursor.peek().upper in _PARTITIONS:
        raise UnknownSyntaxError("it moves the rows of partitions, and no event reports them")
    read = _ACTIONS.get(word)
    if read is not None:
        changes = list(read(cursor, table))
        if changes:
            yield from changes
            return
    elif word not in _OPTIONS:
        raise UnknownSyntaxError("unknown action")
    if word in {"PARTITION", "ORDER"} or cursor.peek().upper in {"PARTITION", "SUBPARTITION"}:
        cursor.skip_all()  # always the last action; its commas separate partitions or columns
    else:
        cursor.skip_element()
    yield Other(cursor.text_from(start))


# Actions on partitions that change rows; databases log no event for these rows.
_MOVES: Final = frozenset({"DROP", "TRUNCATE", "EXCHANGE", "ATTACH", "DETACH"})
_PARTITIONS: Final = frozenset({"PARTITION", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS"})

# First words of actions that change neither columns nor keys.
_OPTIONS: Final = frozenset(
    "ENGINE AUTO_INCREMENT COMMENT ROW_FORMAT ALGORITHM LOCK CHARSET DEFAULT CHARACTER COLLATE "
    "CONVERT DISABLE ENABLE DISCARD IMPORT FORCE ORDER WITH WITHOUT KEY_BLOCK_SIZE CHECKSUM "
    "MAX_ROWS MIN_ROWS AVG_ROW_LENGTH DELAY_KEY_WRITE STATS_PERSISTENT STATS_AUTO_RECALC "
    "STATS_SAMPLE_PAGES PACK_KEYS COMPRESSION ENCRYPTION ENCRYPTED TABLESPACE INSERT_METHOD "
    "CONNECTION DATA INDEX UNION PARTITION COALESCE REORGANIZE EXCHANGE ANALYZE CHECK OPTIMIZE "
    "REBUILD REPAIR REMOVE TRUNCATE UPGRADE NOWAIT PAGE_CHECKSUM TRANSACTIONAL "
    "OWNER CLUSTER INHERIT NO NOT OF ATTACH DETACH VALIDATE REPLICA RESET "
    "MOVE SPLIT MERGE SHRINK LOGGING NOLOGGING CACHE NOCACHE PARALLEL NOPARALLEL PCTFREE PCTUSED "
    "INITRANS STORAGE COMPRESS NOCOMPRESS ALLOCATE DEALLOCATE READ ROW FLASHBACK MINIMIZE "
    "NOMINIMIZE RECORDS_PER_BLOCK".split()
)

# Words after RENAME before the name of what they denote; PostgreSQL allows a column of such a name.
_RENAMED_PARTS: Final = frozenset({"CONSTRAINT", "PARTITION", "SUBPARTITION"})

# Words after ADD, DROP and MODIFY that are no columns.
_NOT_COLUMNS: Final = frozenset({"PARTITION", "SUBPARTITION", "SYSTEM", "PERIOD", "SUPPLEMENTAL"})


def _add(cursor: Cursor, _: TableId) -> Iterator[Change]:
    start = cursor.peek(-1).start
    is_column = cursor.take("COLUMN")
    exists = if_not_exists(cursor)
    if cursor.take("("):
        while True:
            change = constraint(cursor, start)
            if change is None:
                yield from _add_column(cursor, exists=exists)
            else:
                yield change
            if not cursor.take(","):
                break
        cursor.expect(")")
        return
    if not is_column:
        if cursor.dialect != "postgresql" and cursor.peek().upper in _NOT_COLUMNS:
            return
        change = constraint(cursor, start)
        if change is not None:
            yield change
            return
    yield from _add_column(cursor, exists=exists)


def _add_column(cursor: Cursor, *, exists: bool) -> Iterator[Change]:
    exists = if_not_exists(cursor) or exists
    column = definition(cursor, cursor.name())
    default = column.default if isinstance(column.default, str) else None
    yield AddColumn(column.column(cursor.dialect), default, column.first, column.after, exists)
    yield from _key_changes(column)


def _key_changes(definition: Definition) -> Iterator[Change]:
    if definition.is_key:
        yield SetPrimaryKey((definition.name,))
    if definition.is_unique:
        yield AddIndex(None, (definition.name,), unique=True)


def _drop(cursor: Cursor, _: TableId) -> Iterator[Change]:
    is_column = cursor.take("COLUMN") or cursor.take("COLUMNS")
    if not is_column:
        if cursor.take("PRIMARY", "KEY"):
            cursor.skip_element()
            yield DropPrimaryKey()
            return
        if cursor.dialect == "mysql" and cursor.peek().upper in {"INDEX", "KEY"}:
            cursor.next()
            if_exists(cursor)
            yield DropIndex(cursor.name())
            return
        if cursor.take("CONSTRAINT"):
            if_exists(cursor)
            name = cursor.name()
            cursor.skip_element()
            yield DropConstraint(name)
            return
        if cursor.is_at("FOREIGN", "KEY") or cursor.peek().upper in {"CHECK", "UNIQUE"}:
            return
        if cursor.dialect != "postgresql" and cursor.peek().upper in _NOT_COLUMNS | {"UNUSED"}:
            return
    exists = if_exists(cursor)
    names = cursor.names() if cursor.is_at("(") else (cursor.name(),)
    _skip_behaviour(cursor)
    for name in names:
        yield DropColumn(name, exists)


def _skip_behaviour(cursor: Cursor) -> None:
    """Move behind CASCADE CONSTRAINTS, RESTRICT, INVALIDATE, CHECKPOINT 1000."""
    while cursor.peek().upper in {"CASCADE", "CONSTRAINTS", "RESTRICT", "INVALIDATE", "ONLINE"}:
        cursor.next()
    if cursor.take("CHECKPOINT"):
        cursor.next()


def _modify(cursor: Cursor, _: TableId) -> Iterator[Change]:
    is_column = cursor.take("COLUMN")
    if cursor.dialect == "oracle":
        if cursor.peek().upper in {
            *_NOT_COLUMNS,
            "CONSTRAINT",
            "LOB",
            "NESTED",
            "VARRAY",
            "DEFAULT",
        }:
            return
        if cursor.take("("):
            while True:
                yield from _modify_in_oracle(cursor)
                if not cursor.take(","):
                    break
            cursor.expect(")")
            return
        yield from _modify_in_oracle(cursor)
        return
    if not is_column and cursor.peek().upper in _NOT_COLUMNS:
        return
    exists = if_exists(cursor)
    name = cursor.name()
    yield from _redefine(cursor, name, None, exists=exists)


def _change(cursor: Cursor, _: TableId) -> Iterator[Change]:
    cursor.take("COLUMN")
    exists = if_exists(cursor)
    name = cursor.name()
    yield from _redefine(cursor, name, cursor.name(), exists=exists)


def _redefine(cursor: Cursor, name: str, new_name: str | None, *, exists: bool) -> Iterator[Change]:
    """Parse a definition that replaces the old one: attributes that it omits are removed."""
    column = definition(cursor, new_name or name)
    if column.type is None:
        raise UnknownSyntaxError("a column has no type")
    nullable = column.nullable
    if nullable is UNSET:
        nullable = default_nullable(column, cursor.dialect)
    default = column.default if isinstance(column.default, str) else None
    yield ModifyColumn(
        name,
        None if new_name == name else new_name,
        column.type,
        column.type_text,
        nullable,
        default,
        column.generated,
        column.first,
        column.after,
        exists,
    )
    yield from _key_changes(column)


def _modify_in_oracle(cursor: Cursor) -> Iterator[Change]:
    """Parse Oracle's definition of a change: attributes that it omits stay unchanged."""
    column = definition(cursor, cursor.name())
    yield ModifyColumn(
        column.name,
        None,
        column.type,
        column.type_text,
        column.nullable,
        column.default,
        True if column.generated else UNSET,
    )
    yield from _key_changes(column)


def _alter(cursor: Cursor, _: TableId) -> Iterator[Change]:
    if not cursor.take("COLUMN") and cursor.peek().upper in {"INDEX", "CHECK", "CONSTRAINT"}:
        return
    exists = if_exists(cursor)
    name = cursor.name()
    if cursor.take("SET", "DATA", "TYPE") or cursor.take("TYPE"):
        text = type_text(cursor)
        if not text:
            raise UnknownSyntaxError("a type is missing")
        cursor.skip_element()
        yield ModifyColumn(name, None, logical_type(text, cursor.dialect), text, if_exists=exists)
    elif cursor.take("SET", "NOT", "NULL"):
        yield ModifyColumn(name, nullable=False, if_exists=exists)
    elif cursor.take("DROP", "NOT", "NULL"):
        yield ModifyColumn(name, nullable=True, if_exists=exists)
    elif cursor.take("SET", "DEFAULT"):
        text = expression(cursor)
        default = None if text.upper() == "NULL" else text
        yield ModifyColumn(name, default=default, if_exists=exists)
    elif cursor.take("DROP", "DEFAULT"):
        yield ModifyColumn(name, default=None, if_exists=exists)
    elif cursor.take("DROP", "EXPRESSION"):
        cursor.skip_element()
        yield ModifyColumn(name, generated=False, if_exists=exists)
    elif cursor.is_at("SET", "EXPRESSION") or cursor.peek().upper not in {
        "SET", "RESET", "ADD", "DROP", "RESTART",
    }:  # fmt: skip
        raise UnknownSyntaxError("unknown change of a column")


def _rename(cursor: Cursor, table: TableId) -> Iterator[Change]:
    if cursor.take("COLUMN"):
        if_exists(cursor)
        name = cursor.name()
        cursor.expect("TO")
        yield RenameColumn(name, cursor.name())
    elif cursor.dialect == "mysql" and cursor.peek().upper in {"INDEX", "KEY"}:
        cursor.next()
        name = cursor.name()
        cursor.expect("TO")
        yield RenameIndex(name, cursor.name())
    elif cursor.take("TO"):
        yield RenameTable(table, _new_name(cursor, table))
    elif cursor.dialect == "mysql":
        _ = cursor.take("AS") or cursor.take("=")
        yield RenameTable(table, _new_name(cursor, table))
    elif cursor.peek().upper in _RENAMED_PARTS and cursor.peek(1).upper != "TO":
        return
    else:
        name = cursor.name()
        cursor.expect("TO")
        yield RenameColumn(name, cursor.name())


def _new_name(cursor: Cursor, table: TableId) -> TableId:
    if cursor.dialect == "mysql":
        new = _referenced_table(cursor)
        # a bare name belongs to the session's database or, if that is unknown, to the table's
        return TableId(new.database or table.database, None, new.name)
    return TableId(table.database, table.schema, cursor.name())


def _set(cursor: Cursor, table: TableId) -> Iterator[Change]:
    if cursor.take("SCHEMA"):
        yield RenameTable(table, TableId(table.database, cursor.name(), table.name))
    elif cursor.take("UNUSED"):
        cursor.take("COLUMN")
        names = cursor.names() if cursor.is_at("(") else (cursor.name(),)
        _skip_behaviour(cursor)
        for name in names:
            yield DropColumn(name)


_ACTIONS: Final[Mapping[str, Callable[[Cursor, TableId], Iterator[Change]]]] = {
    "ADD": _add,
    "DROP": _drop,
    "MODIFY": _modify,
    "CHANGE": _change,
    "ALTER": _alter,
    "RENAME": _rename,
    "SET": _set,
}
