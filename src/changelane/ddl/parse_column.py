# SPDX-License-Identifier: Apache-2.0
"""The parser of column definitions: a name, a type, and attributes in any order."""

import datetime as dt
import decimal
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from changelane.ddl.tokenizer import Cursor, UnknownSyntaxError
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
    """A parsed definition; ``UNSET`` and ``None`` for attributes that it does not contain.

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
        """Return the column; attributes that the definition omits get the dialect's defaults."""
        kind = UNKNOWN if self.type is None else self.type
        default: object = UNSET
        if isinstance(self.default, str):
            default = literal(self.default, kind)
        nullable = self.nullable
        if isinstance(nullable, UnsetType):
            nullable = default_nullable(self, dialect)
        return Column(self.name, kind, self.type_text, nullable, self.generated, default)


def default_nullable(definition: Definition, dialect: str) -> bool | None:
    """Return whether a column without NULL and NOT NULL is nullable; ``None`` if that is unknown.

    For MySQL's TIMESTAMP it depends on ``explicit_defaults_for_timestamp``, which no statement
    contains. https://dev.mysql.com/doc/refman/8.0/en/timestamp-initialization.html
    """
    if definition.is_key:
        return False
    text = (definition.type_text or "").lower()
    if dialect == "mysql" and text.startswith("timestamp"):
        return None
    # SERIAL is an abbreviation with NOT NULL and a default
    return not re.match(r"(?:big|small)?serial", text)


# Reads the rest of an attribute after its first word. The word ends a type or an expression.
_ReadAttribute = Callable[[Cursor, Definition], None]


def _not(cursor: Cursor, definition: Definition) -> None:
    if cursor.take("NULL"):
        definition.nullable = False
        if cursor.dialect == "oracle":
            _ = cursor.take("ENABLE") or cursor.take("DISABLE")
    elif not (cursor.take("DEFERRABLE") or cursor.take("ENFORCED") or cursor.take("VISIBLE")):
        raise UnknownSyntaxError("unknown attribute")


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
        if cursor.is_at("("):
            cursor.skip()
        return
    if not cursor.is_at("("):
        raise UnknownSyntaxError("unknown attribute")
    cursor.skip()
    definition.generated = True


_UNNAMED: Final = frozenset("CHECK NOT NULL PRIMARY UNIQUE REFERENCES DEFAULT".split())


def _constraint(cursor: Cursor, _: Definition) -> None:
    if cursor.peek().upper not in _UNNAMED:
        cursor.name()


def _references(cursor: Cursor, _: Definition) -> None:
    first_table = cursor.first_table
    cursor.table()
    cursor.first_table = first_table
    if cursor.is_at("("):
        cursor.skip()


def _on(cursor: Cursor, _: Definition) -> None:
    # ON UPDATE CURRENT_TIMESTAMP(3), ON DELETE SET NULL, ON DELETE NO ACTION
    if not (cursor.take("UPDATE") or cursor.take("DELETE")):
        raise UnknownSyntaxError("unknown attribute")
    if cursor.take("SET") or cursor.take("NO"):
        pass
    cursor.skip()
    if cursor.is_at("("):
        cursor.skip()


def _first(_: Cursor, definition: Definition) -> None:
    definition.first = True


def _after(cursor: Cursor, definition: Definition) -> None:
    definition.after = cursor.name()


def _using(cursor: Cursor, _: Definition) -> None:
    # Oracle's USING INDEX with its storage, PostgreSQL's USING expression
    cursor.skip_element()


def _no_value(_: Cursor, __: Definition) -> None:
    pass


def _skip_value(cursor: Cursor, _: Definition) -> None:
    cursor.take("=")
    cursor.skip()


def _skip_group(cursor: Cursor, _: Definition) -> None:
    if cursor.is_at("("):
        cursor.skip()


def _collate(cursor: Cursor, _: Definition) -> None:
    cursor.take("=")
    cursor.skip()
    while cursor.take("."):
        cursor.skip()


def _character(cursor: Cursor, _: Definition) -> None:
    cursor.expect("SET")
    _skip_value(cursor, _)


def _versioning(cursor: Cursor, _: Definition) -> None:
    cursor.expect("SYSTEM", "VERSIONING")


_ATTRIBUTES: Final[Mapping[str, _ReadAttribute]] = {
    "NOT": _not,
    "NULL": _null,
    "DEFAULT": _default,
    "PRIMARY": _primary,
    "UNIQUE": _unique,
    "AUTO_INCREMENT": _auto_increment,
    "GENERATED": _generated,
    "AS": _as,
    "CONSTRAINT": _constraint,
    "CHECK": _skip_group,
    "REFERENCES": _references,
    "ON": _on,
    "FIRST": _first,
    "AFTER": _after,
    "USING": _using,
    "CHARACTER": _character,
    "CHARSET": _skip_value,
    "COLLATE": _collate,
    "COMMENT": _skip_value,
    "WITH": _versioning,
    "WITHOUT": _versioning,
    "COMPRESSED": _no_value,
    **dict.fromkeys(
        "COLUMN_FORMAT STORAGE SRID REF_SYSTEM_ID COMPRESSION ENGINE_ATTRIBUTE INITIALLY MATCH "
        "SECONDARY_ENGINE_ATTRIBUTE".split(),
        _skip_value,
    ),
    **dict.fromkeys(
        "VIRTUAL STORED PERSISTENT VISIBLE INVISIBLE ENFORCED DEFERRABLE ENABLE DISABLE VALIDATE "
        "NOVALIDATE RELY NORELY SORT".split(),
        _no_value,
    ),
}
_MYSQL_ONLY: Final = frozenset({"KEY", "FIRST", "AFTER", "COMMENT", "AUTO_INCREMENT"})


def _attribute(cursor: Cursor) -> _ReadAttribute | None:
    """Return the reader of the next attribute; ``None`` if no attribute is next."""
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
    """Parse the definition of a column after its name, up to the end of the element.

    Raises:
        UnknownSyntaxError: An attribute is unknown.
    """
    parsed = Definition(name)
    text = type_text(cursor)
    if text:
        parsed.type_text = text
        parsed.type = logical_type(text, cursor.dialect)
        # SERIAL is an abbreviation of BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
        parsed.is_unique = cursor.dialect == "mysql" and text.lower() == "serial"
    while not cursor.is_at_definition_end:
        read = _attribute(cursor)
        if read is None:
            raise UnknownSyntaxError("unknown attribute")
        cursor.next()
        read(cursor, parsed)
    return parsed


_TYPE_SYMBOLS: Final = frozenset({".", "(", ")", "[", "]", ",", "*", "-", "%"})


_LATER_TYPE_WORDS: Final = frozenset(
    "PRECISION VARYING CHARACTER CHAR VARCHAR VARCHARACTER VARBINARY BYTE RAW LARGE OBJECT "
    "UNSIGNED SIGNED ZEROFILL BINARY ASCII UNICODE WITH WITHOUT LOCAL TIME ZONE TO YEAR MONTH "
    "DAY HOUR MINUTE SECOND ARRAY".split()
)


def type_text(cursor: Cursor) -> str:
    """Parse a type and return its text; empty if no type is next.

    Raises:
        UnknownSyntaxError: The next words are no type.
    """
    begin, depth, is_name = cursor.index, 0, True
    while True:
        word = cursor.peek()
        if depth == 0:
            if cursor.is_at_definition_end or _attribute(cursor) is not None:
                return cursor.normalised_text(begin, cursor.index)
            if word.kind == "word" and not is_name and word.upper not in _LATER_TYPE_WORDS:
                raise UnknownSyntaxError("unknown attribute")
            is_name = word.upper == "."
        if word.kind == "symbol" and word.upper not in _TYPE_SYMBOLS:
            raise UnknownSyntaxError("a type is missing")
        if word.kind in {"text", "number"} and depth == 0:
            raise UnknownSyntaxError("a type is missing")
        depth += (word.upper in {"(", "["}) - (word.upper in {")", "]"})
        cursor.next()


def expression(cursor: Cursor) -> str:
    """Move over an expression, up to the next attribute, and return its text."""
    start = cursor.peek().start
    while cursor.is_at("-") or cursor.is_at("+"):
        cursor.next()
    cursor.skip()
    while not cursor.is_at_definition_end and _attribute(cursor) is None:
        cursor.skip()
    return cursor.text_from(start)


_QUOTED: Final = re.compile(r"'((?:[^'\\]|'')*+)'(?:\s*+::\s*+[\w. ]++(?:\(\d++(?:,\d++)?\))?)?")
_WHOLE: Final = re.compile(r"[+-]?\d{1,100}")
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,100}(?:\.\d{0,100})?|\.\d{1,100})(?:[eE][+-]?\d{1,3})?")


def literal(text: str, kind: LogicalType) -> object:
    """Return the value of a default's text; ``UNSET`` if it is not a literal of the type.

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


def is_stored_unchanged(value: Value, column: Column, dialect: str) -> bool:
    """Whether a database certainly stores the literal of a default unchanged.

    MySQL accepts ENUM members in any case, sorts SET members, rounds fractions of seconds, and
    strips trailing spaces of CHAR, which other databases pad. Oracle reads an empty text as NULL.
    Types such as UUID have a form of their own.
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
            # fraction digits beyond the scale of the column; MySQL's DECIMAL is DECIMAL(10,0)
            extra_digits = -int(exponent) - (scale or 0)
            return extra_digits <= 0 or not any(digits[-extra_digits:])
        case _:
            return True


def implicit_default(kind: LogicalType) -> Value:
    """Return MySQL's implicit default of a NOT NULL column; ``None`` if it is unknown.

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
