# SPDX-License-Identifier: Apache-2.0
"""``pos`` and the parts of table names."""

import re
from typing import Final

from changelane.errors import DecodeError
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_DIGITS: Final = re.compile(r"\d{1,38}", re.ASCII)
_UNKNOWN_TRAIL: Final = re.compile(r"0*(-\d{1,9})(\d{10})", re.ASCII)
_BYTES: Final = 10**10
"""The addresses of one trail file: the last ten digits of ``pos``."""
_LENGTH: Final = 20
_LEAST: Final = -(10**9 - 1) * _BYTES
_MOST: Final = 10**38 - 1


def position_of(pos: str) -> SequencePosition:
    """Return the position of ``pos``: the number of the trail file, then the byte in it.

    >>> position_of("00000000000000002928").value
    2928

    Raises:
        DecodeError: The text is no position.
    """
    if _DIGITS.fullmatch(pos):
        return SequencePosition(int(pos))
    # a trail without a number has -1: "00000000-10000001391"
    match = _UNKNOWN_TRAIL.fullmatch(pos)
    if match is None or len(pos) != _LENGTH:
        raise DecodeError("not a position", code=ReasonCode.WRONG_TYPE, path="$.pos")
    return SequencePosition(int(match[1]) * _BYTES + int(match[2]))


def pos_of(sequence: SequencePosition) -> str | None:
    """Return ``pos``; ``None`` if a position is out of its range."""
    if not _LEAST <= sequence.value <= _MOST:
        return None
    if sequence.value >= 0:
        return f"{sequence.value:020}"
    file, byte = divmod(sequence.value, _BYTES)
    return f"{str(file).rjust(10, '0')}{byte:010}"


def table_of(text: str) -> TableId:
    """Return the table of ``CATALOG.SCHEMA.TABLE``, whose first two parts may be missing.

    >>> table_of("PDB1.HR.EMPLOYEES")
    TableId(database='PDB1', schema='HR', name='EMPLOYEES')
    """
    owner, _, name = text.rpartition(".")
    catalog, _, schema = owner.rpartition(".")
    return TableId(catalog or None, schema or None, name or None)


def name_of(table: TableId) -> str:
    """Return the parts of a table's name, joined by dots."""
    return ".".join(part for part in (table.database, table.schema, table.name) if part)
