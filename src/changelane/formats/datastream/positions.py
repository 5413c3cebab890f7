# SPDX-License-Identifier: Apache-2.0
"""Positions of Datastream's events: the coordinates of each source, in ``source_metadata``.

====================  =============================  ================================
source                keys                           position
====================  =============================  ================================
MySQL                 ``log_file``, ``log_position``  file and position of the event
Oracle                ``scn``, ``rs_id``, ``ssn``     SCN, record set, statement
PostgreSQL            ``lsn`` as ``X/Y``              the LSN
SQL Server            ``lsn`` as ``a:b:c``            the LSN of the commit
others                ``sort_keys``, if numbers       a sequence
====================  =============================  ================================
"""

import re
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.formats.contract.format import Report
from changelane.formats.datastream.wire import Row, SourceMetadata
from changelane.position import (
    LsnPosition,
    MySqlPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
)
from changelane.reason_codes import ReasonCode

_DIGITS: Final = re.compile(r"[0-9]{1,30}")
_POSTGRES: Final = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")
_SQL_SERVER: Final = re.compile(r"(?:0x)?[0-9A-Fa-f]{1,16}(?::[0-9A-Fa-f]{1,16}){2}")
_FILE: Final = re.compile(r".*\.[0-9]+", re.DOTALL)
_U64: Final = 1 << 64
_U63: Final = 1 << 63
_U32: Final = 1 << 32


def position_of(metadata: SourceMetadata, sort_keys: list[Any] | None) -> Position | None:
    """Return the position of an event; ``None`` if it has no coordinates.

    Raises:
        DecodeError: A coordinate is not one of its source.
    """
    if metadata.log_file and metadata.log_position is not None:
        if not _FILE.fullmatch(metadata.log_file):
            raise _wrong("log_file")
        return MySqlPosition(metadata.log_file, _number("log_position", metadata.log_position))
    if metadata.scn is not None and metadata.scn != "":
        scn, ssn = _number("scn", metadata.scn), _number("ssn", metadata.ssn or 0)
        position = ScnPosition(scn, None, metadata.rs_id or None, ssn)
        if metadata.rs_id and not _is_record_set(metadata.rs_id):
            raise _wrong("rs_id")
        return position
    if metadata.lsn is not None and metadata.lsn != "":
        return _lsn(metadata.lsn)
    return None if sort_keys is None else _sequence(sort_keys)


def _wrong(field: str) -> DecodeError:
    return DecodeError(
        "not a coordinate of its source",
        code=ReasonCode.WRONG_TYPE,
        path=f"$.source_metadata.{field}",
    )


def _number(field: str, value: int | str) -> int:
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value):
            raise _wrong(field)
        value = int(value)
    if not 0 <= value < _U64:
        raise _wrong(field)
    return value


def _is_record_set(text: str) -> bool:
    try:
        parts = [int(part, 16) for part in text.strip().split(".")]
    except ValueError:
        return False
    return len(parts) <= 3 and all(0 <= part < _U64 for part in parts)


def _lsn(value: int | str) -> Position:
    if isinstance(value, int):
        return PostgresPosition(_number("lsn", value))
    if match := _POSTGRES.fullmatch(value):
        return PostgresPosition(int(match[1], 16) << 32 | int(match[2], 16))
    if _SQL_SERVER.fullmatch(value):
        return LsnPosition(value.removeprefix("0x"))
    return PostgresPosition(_number("lsn", value))


def _sequence(sort_keys: list[Any]) -> SequencePosition | None:
    """Return the position of keys that are one to three whole numbers, in their order."""
    limits = (_U63, _U63, _U32)
    if not 0 < len(sort_keys) <= len(limits) or not all(
        type(number) is int and 0 <= number < limit
        for number, limit in zip(sort_keys, limits, strict=False)
    ):
        return None
    first, second, third = (*sort_keys, 0, 0)[:3]
    return SequencePosition((first << 63) | second, third)


def coordinates(position: Position | None, report: Report) -> Row:
    """Return the keys of ``source_metadata`` with a position."""
    match position:
        case None:
            return {}
        case MySqlPosition(file=file, pos=pos) if _FILE.fullmatch(file) and 0 <= pos < _U64:
            if position.row:
                report(("position.row", "the rows of an event of the binary log share its place"))
            if position.gtid is not None:
                report(("position", "the GTID is not written"))
            return {"log_file": file, "log_position": pos}
        case ScnPosition(scn=scn, rs_id=rs_id, ssn=ssn) if (
            0 <= scn < _U64 and 0 <= ssn < _U64 and (not rs_id or _is_record_set(rs_id))
        ):
            if position.commit_scn is not None or position.tx_seq or rs_id == "":
                report(("position", "only SCN, record set and statement are written"))
            return {"scn": scn, "ssn": ssn, "rs_id": rs_id or ""}
        case PostgresPosition(lsn=lsn) if 0 <= lsn < _U64:
            if position.last_commit_lsn is not None or position.row:
                report(("position", "only the LSN is written"))
            return {"lsn": f"{lsn >> 32:X}/{lsn & (_U32 - 1):X}"}
        case LsnPosition(commit_lsn=lsn) if _SQL_SERVER.fullmatch(lsn):
            if position.change_lsn is not None or position.event_serial_no is not None:
                report(("position", "only the LSN of the commit is written"))
            return {"lsn": lsn}
        case _:
            report(("position", "not a position of Datastream"))
            return {}
