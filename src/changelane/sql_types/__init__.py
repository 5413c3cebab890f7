# SPDX-License-Identifier: Apache-2.0
"""Parsers of the type texts of databases (:attr:`~changelane.schema.Column.source_type`)."""

from collections.abc import Callable, Mapping
from typing import Final

from changelane.sql_types import mysql, oracle, postgresql
from changelane.types import LogicalType

_PARSERS: Final[Mapping[str, Callable[[str], LogicalType]]] = {
    "mysql": lambda text: mysql.parse(text).kind,
    "postgresql": postgresql.parse,
    "oracle": oracle.parse,
}


def logical_type(text: str, dialect: str) -> LogicalType:
    """Return the logical type of a database's type text.

    >>> logical_type("bigint(20) unsigned", "mysql")
    Integer(bits=64, unsigned=True)

    Args:
        text: The type as the database spells it.
        dialect: ``mysql``, ``postgresql`` or ``oracle``.
    """
    return _PARSERS[dialect](text)
