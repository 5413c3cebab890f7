# SPDX-License-Identifier: Apache-2.0
"""Definitions of columns: a name, a type, and attributes in any order."""

import datetime as dt
import decimal
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.ddl.tokenizer import Cursor, UnreadError
from changelane.schema import Column
from changelane.sql_types import logical_type
from changelane.types import (
    UNKNOWN,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    LogicalType,
    Set,
    String,
    Timestamp,
    Value,
    Year,
)
from changelane.types.values import parse_date, parse_timestamp


class Definition(msgspec.Struct):
    """What a definition says; ``UNSET`` and ``None`` where it does not.

    Attributes:
        type_text: The type as the source spells it.
        is_key: The column alone is the primary key.
    """

    name: str
    type: LogicalType | None = None
    type_text: str | None = None
    nullable: bool | UnsetType | None = UNSET
    default: str | UnsetType | None = UNSET
    generated: bool = False
    is_key: bool = False
    is_unique: bool = False
    first: bool = False
    after: str | None = None

    def column(self, dialect: str) -> Column:
        """Return the column of a definition that says everything there is to say."""
        kind = UNKNOWN if self.type is None else self.type
        default: object = UNSET
        if isinstance(self.default, str):
            default = literal(self.default, kind)
        nullable = self.nullable
        if isinstance(nullable, UnsetType):
            nullable = usual_nullable(self, dialect)
        return Column(self.name, kind, self.type_text, nullable, self.generated, default)


def usual_nullable(definition: Definition, dialect: str) -> bool | None:
    """Return whether a column may be NULL whose definition does not say so.

    MySQL's TIMESTAMP may not before ``explicit_defaults_for_timestamp`` became the default; no
    statement tells which holds. https://dev.mysql.com/doc/refman/8.0/en/timestamp-initialization.html
    """
    if definition.is_key:
        return False
    text = (definition.type_text or "").lower()
    if dialect == "mysql" and text.startswith("timestamp"):
        return None
    # SERIAL is short for NOT NULL with a default
    return not re.match(r"(?:big|small)?serial", text)


# Words that end a type or an expression, and what to do behind them.
_Read = Callable[[Cursor, Definition], None]


def _not(cursor: Cursor, definition: Definition) -> None:
    if cursor.take("NULL"):
        definition.nullable = False
        if cursor.dialect == "oracle":
            _ = cursor.take("ENABLE") or cursor.take("DISABLE")
    elif not (cursor.take("DEFERRABLE") or cursor.take("ENFORCED") or cursor.take("VISIBLE")):
        raise UnreadError("an attribute that is not known")


def _null(_: Cursor, definition: Definition) -> None:
    definition.nullable = True


def _default(cursor: Cursor, definition: Definition) -> None:
    if cursor.take("ON", "NULL"):  # Oracle
        definition.nullable = False
        _ = cursor.take("FOR", "INSERT", "ONLY") or cursor.take("FOR", "INSERT", "AND", "UPDATE")
    text = expression(cursor)
    definition.default = None if text.upper() == "NULL" else text


def _primary(cursor: Cursor, definition: Definition) -> None:
    cursor.expect("KEY")
    _key(cursor, definition)


def _key(_: Cursor, definition: Definition) -> None:
    definition.is_key = True
    definition.nullable = False


def _unique(cursor: Cursor, definition: Definition) -> None:
    definition.is_unique = True
    _ = cursor.take("KEY") or cursor.take("INDEX")


def _auto_increment(_: Cursor, definition: Definition) -> None:
    definition.nullable = False


def _generated(cursor: Cursor, definition: Definition) -> None:
    if cursor.take("BY", "DEFAULT"):
        cursor.take("ON", "NULL")
    else:
        cursor.take("ALWAYS")
    cursor.expect("AS")
    _as(cursor, definition)


def _as(cursor: Cursor, definition: Definition) -> None:
    if cursor.take("IDENTITY"):
        definition.nullable = False
        if cursor.sees("("):
            cursor.skip()
        return
    if not cursor.sees("("):
        raise UnreadError("an attribute that is not known")
    cursor.skip()
    definition.generated = True


_UNNAMED: Final = frozenset("CHECK NOT NULL PRIMARY UNIQUE REFERENCES DEFAULT".split())


def _constraint(cursor: Cursor, _: Definition) -> None:
    if cursor.peek().upper not in _UNNAMED:
        cursor.name()


def _references(cursor: Cursor, _: Definition) -> None:
    is_named = cursor.named
    cursor.table()
    cursor.named = is_named
    if cursor.sees("("):
        cursor.skip()


def _on(cursor: Cursor, _: Definition) -> None:
    # ON UPDATE CURRENT_TIMESTAMP(3), ON DELETE SET NULL, ON DELETE NO ACTION
    if not (cursor.take("UPDATE") or cursor.take("DELETE")):
        raise UnreadError("an attribute that is not known")
    if cursor.take("SET") or cursor.take("NO"):
        pass
    cursor.skip()
    if cursor.sees("("):
        cursor.skip()


def _first(_: Cursor, definition: Definition) -> None:
    definition.first = True


def _after(cursor: Cursor, definition: Definition) -> None:
    definition.after = cursor.name()


def _using(cursor: Cursor, _: Definition) -> None:
    # Oracle's USING INDEX with its storage, PostgreSQL's USING expression
    cursor.skip_element()


def _nothing(_: Cursor, __: Definition) -> None:
    pass


def _one(cursor: Cursor, _: Definition) -> None:
    cursor.take("=")
    cursor.skip()


def _group(cursor: Cursor, _: Definition) -> None:
    if cursor.sees("("):
        cursor.skip()


def _collate(cursor: Cursor, _: Definition) -> None:
    cursor.take("=")
    cursor.skip()
    while cursor.take("."):
        cursor.skip()


def _character(cursor: Cursor, _: Definition) -> None:
    cursor.expect("SET")
    _one(cursor, _)


def _versioning(cursor: Cursor, _: Definition) -> None:
    cursor.expect("SYSTEM", "VERSIONING")


_ATTRIBUTES: Final[Mapping[str, _Read]] = {
    "NOT": _not,
    "NULL": _null,
    "DEFAULT": _default,
    "PRIMARY": _primary,
    "UNIQUE": _unique,
    "AUTO_INCREMENT": _auto_increment,
    "GENERATED": _generated,
    "AS": _as,
    "CONSTRAINT": _constraint,
    "CHECK": _group,
    "REFERENCES": _references,
    "ON": _on,
    "FIRST": _first,
    "AFTER": _after,
    "USING": _using,
    "CHARACTER": _character,
    "CHARSET": _one,
    "COLLATE": _collate,
    "COMMENT": _one,
    "WITH": _versioning,
    "WITHOUT": _versioning,
    "COMPRESSED": _nothing,
    **dict.fromkeys(
        "COLUMN_FORMAT STORAGE SRID REF_SYSTEM_ID COMPRESSION ENGINE_ATTRIBUTE INITIALLY MATCH "
        "SECONDARY_ENGINE_ATTRIBUTE".split(),
        _one,
    ),
    **dict.fromkeys(
        "VIRTUAL STORED PERSISTENT VISIBLE INVISIBLE ENFORCED DEFERRABLE ENABLE DISABLE VALIDATE "
        "NOVALIDATE RELY NORELY SORT".split(),
        _nothing,
    ),
}
_MYSQL_ONLY: Final = frozenset({"KEY", "FIRST", "AFTER", "COMMENT", "AUTO_INCREMENT"})


def _attribute(cursor: Cursor) -> _Read | None:
    """Return how to read the attribute that comes next; ``None`` when none does."""
    upper = cursor.peek().upper
    if upper == "KEY" and cursor.dialect == "mysql":
        return _key
    if upper == "CHARACTER" and cursor.peek(1).upper != "SET":
        return None  # CHARACTER VARYING
    if upper in {"WITH", "WITHOUT"} and cursor.peek(1).upper in {"TIME", "LOCAL"}:
        return None
    if upper in _MYSQL_ONLY and cursor.dialect != "mysql":
        return None
    return _ATTRIBUTES.get(upper)


def definition(cursor: Cursor, name: str) -> Definition:
    """Read what follows the name of a column, up to the end of the element.

    Raises:
        UnreadError: An attribute is not known.
    """
    parsed = Definition(name)
    text = type_text(cursor)
    if text:
        parsed.type_text = text
        parsed.type = logical_type(text, cursor.dialect)
        # short for BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
        parsed.is_unique = cursor.dialect == "mysql" and text.lower() == "serial"
    while not cursor.is_behind:
        read = _attribute(cursor)
        if read is None:
            raise UnreadError("an attribute that is not known")
        cursor.next()
        read(cursor, parsed)
    return parsed


_IN_TYPES: Final = frozenset({".", "(", ")", "[", "]", ",", "*", "-", "%"})


_LATER_WORDS: Final = frozenset(
    "PRECISION VARYING CHARACTER CHAR VARCHAR VARCHARACTER VARBINARY BYTE RAW LARGE OBJECT "
    "UNSIGNED SIGNED ZEROFILL BINARY ASCII UNICODE WITH WITHOUT LOCAL TIME ZONE TO YEAR MONTH "
    "DAY HOUR MINUTE SECOND ARRAY".split()
)


def type_text(cursor: Cursor) -> str:
    """Read a type and return it as the source spells it; empty when none is here.

    Raises:
        UnreadError: What stands here is no type.
    """
    begin, depth, is_name = cursor.place, 0, True
    while True:
        word = cursor.peek()
        if depth == 0:
            if cursor.is_behind or _attribute(cursor) is not None:
                return cursor.spelled(begin, cursor.place)
            if word.kind == "word" and not is_name and word.upper not in _LATER_WORDS:
                raise UnreadError("an attribute that is not known")
            is_name = word.upper == "."
        if word.kind == "symbol" and word.upper not in _IN_TYPES:
            raise UnreadError("no type where one belongs")
        if word.kind in {"text", "number"} and depth == 0:
            raise UnreadError("no type where one belongs")
        depth += (word.upper in {"(", "["}) - (word.upper in {")", "]"})
        cursor.next()


def expression(cursor: Cursor) -> str:
    """Move over an expression, up to the next attribute, and return its text."""
    start = cursor.peek().start
    while cursor.sees("-") or cursor.sees("+"):
        cursor.next()
    cursor.skip()
    while not cursor.is_behind and _attribute(cursor) is None:
        cursor.skip()
    return cursor.text_from(start)


_QUOTED: Final = re.compile(r"'((?:[^'\\]|'')*+)'(?:\s*+::\s*+[\w. ]++(?:\(\d++(?:,\d++)?\))?)?")
_WHOLE: Final = re.compile(r"[+-]?\d{1,100}")
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,100}(?:\.\d{0,100})?|\.\d{1,100})(?:[eE][+-]?\d{1,3})?")


def literal(text: str, kind: LogicalType) -> object:
    """Return the value of a default's text; ``UNSET`` when it is no plain literal of the type.

    >>> literal("'0.00'", Decimal(10, 2)), literal("CURRENT_TIMESTAMP", Timestamp())
    (Decimal('0.00'), UNSET)
    """
    quoted = _QUOTED.fullmatch(text)
    inside = text if quoted is None else quoted.group(1).replace("''", "'")
    value: Value | UnsetType = UNSET
    match kind:
        case Integer() if _WHOLE.fullmatch(inside):
            number = int(inside)
            low, high = kind.range()
            value = number if low <= number <= high else UNSET
        case Year() if _WHOLE.fullmatch(inside) and len(inside) == 4:
            value = int(inside)
        case Decimal() if _NUMBER.fullmatch(inside):
            value = decimal.Decimal(inside)
        case Float() if _NUMBER.fullmatch(inside):
            value = float(inside)
        case Boolean() if inside.lower() in {"true", "false"}:
            value = inside.lower() == "true"
        case String() | Enum() | Set() if quoted is not None:
            value = inside
        case Date() if quoted is not None:
            day = parse_date(inside)
            value = day if isinstance(day, dt.date) else UNSET
        case Timestamp() if quoted is not None:
            moment = parse_timestamp(inside)
            value = moment if isinstance(moment, dt.datetime) else UNSET
        case _:
            pass
    return value


_TEXT: Final = re.compile(
    r"(?:national )?(?:n?varchar2?|n?char|character|(?:tiny|medium|long)?text|n?clob)\b"
)
_PADDED: Final = re.compile(r"(?:national )?(?:n?char|character)\b(?! varying)")


def is_stored(value: Value, column: Column, dialect: str) -> bool:
    """Say whether a database surely keeps a value as a default's literal spells it.

    MySQL takes members of an ENUM in any case, sorts those of a SET, rounds fractions of seconds,
    and strips the spaces that others pad CHAR with; an empty text is NULL for Oracle; types such
    as UUID have a form of their own.
    """
    text = (column.source_type or "").lower()
    match column.type, value:
        case Enum(members), str():
            return value in (members or ())
        case Set(members), str():
            written_members = value.split(",") if value else []
            return written_members == [
                member for member in members or () if member in written_members
            ]
        case String(), str():
            if not _TEXT.match(text) or (dialect == "oracle" and not value):
                return False
            if _PADDED.match(text) is None:
                return True
            return dialect == "mysql" and not value.endswith(" ")
        case Timestamp(precision), dt.datetime():
            return f"{value.microsecond:06}"[precision or 0 :].strip("0") == ""
        case Float(), _:
            return "," not in text  # FLOAT(5,1)
        case Decimal(_, scale), decimal.Decimal():
            if scale is None and dialect != "mysql":
                return True
            _, digits, exponent = value.as_tuple()
            # digits behind those that the column has room for: MySQL's DECIMAL is DECIMAL(10,0)
            extra_digits = -int(exponent) - (scale or 0)
            return extra_digits <= 0 or not any(digits[-extra_digits:])
        case _:
            return True


def zero(kind: LogicalType) -> Value:
    """Return what MySQL puts into NOT NULL columns without a default; ``None`` = not known here.

    https://dev.mysql.com/doc/refman/8.0/en/data-type-defaults.html
    """
    match kind:
        case Integer():
            return 0
        case Decimal():
            return decimal.Decimal(0)
        case Float():
            return 0.0
        case String():
            return ""
        case _:
            return None
