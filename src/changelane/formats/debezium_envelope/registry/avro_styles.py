# SPDX-License-Identifier: Apache-2.0
"""The styles of Avro schemas, and the names of CockroachDB's.

Source of CockroachDB's names: ``pkg/ccl/changefeedccl/name.go`` and ``avro.go`` of
https://github.com/cockroachdb/cockroach.
"""

import re
from enum import StrEnum
from typing import Final


class AvroStyle(StrEnum):
    """How an Avro schema states the types of Connect."""

    CONNECT = "connect"
    """In the properties ``connect.*``; the logical types are those that Connect knows."""
    LOGICAL_TYPES = "logical_types"
    """In the properties ``connect.*``, and in all logical types."""
    COCKROACHDB = "cockroachdb"
    """In logical types, and in the property ``__crdb__`` with the SQL of a column."""


DECIMAL_TEXT: Final = "decimal"
"""The semantic name of the text of a decimal, with the parameters of CockroachDB's own schemas."""
PRECISION, SCALE = "precision", "scale"
SQL_COLUMN: Final = "__crdb__"
"""The property of a field with CockroachDB's SQL of the column."""

_ESCAPE: Final = re.compile(r"_u[0-9a-fA-F]{2,8}_")
_NOT_IN_AVRO: Final = re.compile(r"[^A-Za-z0-9_]")
_NOT_IN_KAFKA: Final = re.compile(r"[^a-zA-Z0-9._\-]")
_MOST_KAFKA_CHARACTERS: Final = 249
_MOST_SHORT: Final = 1 << 16


def cockroachdb_avro_name(name: str) -> str:
    """Return the name of a record or a field for a name in SQL.

    >>> cockroachdb_avro_name("2 b")
    '_u0032__u0020_b'
    """
    if "0" <= name[:1] <= "9":
        return _escaped(name[0]) + _with_escapes(name[1:], _NOT_IN_AVRO)
    return _with_escapes(name, _NOT_IN_AVRO)


def cockroachdb_topic(name: str) -> str:
    """Return the topic for a name in SQL, which Kafka cuts to 249 characters.

    >>> cockroachdb_topic("movr.public.my users")
    'movr.public.my_u0020_users'
    """
    if name in {".", ".."}:
        return "".join(map(_escaped, name))
    return _with_escapes(name, _NOT_IN_KAFKA)[:_MOST_KAFKA_CHARACTERS]


def cockroachdb_sql_name(name: str) -> str:
    """Return the name in SQL of an Avro name, or of a topic.

    >>> cockroachdb_sql_name("_u0032__u0020_b")
    '2 b'
    """
    return _ESCAPE.sub(_character, name) if "_u" in name else name


def _character(match: re.Match[str]) -> str:
    number = int(match.group()[2:-1], 16)
    is_character = number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if is_character else match.group()


def _with_escapes(name: str, not_allowed: re.Pattern[str]) -> str:
    name = _ESCAPE.sub(lambda match: "".join(map(_escaped, match.group())), name)
    return not_allowed.sub(lambda match: _escaped(match.group()), name)


def _escaped(character: str) -> str:
    number = ord(character)
    return f"_u{number:04x}_" if number <= _MOST_SHORT else f"_u{number:08x}_"
