# SPDX-License-Identifier: Apache-2.0
"""The sequence that numbers the changes of one task, and the two halves of an update.

"_sequence_id_: A unique message ID of the STRING type, consisting of digits. The UPDATE_BEFOR and
UPDATE_AFTER operations for the same update share a sequence ID." (seed 003). In the samples it is
a time in milliseconds and a counter of six digits; it orders only inside one task, and compares as
a number, not as text.
"""

import re
from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import DataChange, HalfUpdate, Op
from changelane.formats.contract.format import Report
from changelane.position import Position, SequencePosition
from changelane.reason_codes import ReasonCode

FULL_LOAD: Final = -1
"""The sequence of every row of a full load."""

_SEQUENCE: Final = re.compile(rf"[0-9]{{1,36}}|{FULL_LOAD}")


def read_sequence(value: str | int | None, path: str) -> int | None:
    """Return a sequence as a number; ``None`` when there is none.

    Raises:
        DecodeError: It is not made of digits.
    """
    if value is None or value == "":
        return None
    text = str(value)
    if _SEQUENCE.fullmatch(text) is None:
        raise DecodeError(
            "a sequence that is not made of digits", code=ReasonCode.WRONG_TYPE, path=path
        )
    return int(text)


def sequence_of(position: Position | None, report: Report) -> int | None:
    """Return the sequence that a position is written as; ``None`` when it has none."""
    if not isinstance(position, SequencePosition):
        return None
    if position.row:
        report(("position.row", "a sequence has no rows"))
    if position.value < FULL_LOAD:
        report(("position", "a sequence is made of digits"))
        return None
    return position.value


def half_of(change: DataChange, sequence: int) -> HalfUpdate:
    """Return the half of an update that a message with this sequence tells."""
    return HalfUpdate(change, pair=str(sequence))


def halves_of(update: DataChange) -> tuple[DataChange, DataChange]:
    """Return the row before and the row after of an update, as a delete and a create."""
    replace = msgspec.structs.replace
    return (
        replace(update, op=Op.DELETE, after=None),
        replace(update, op=Op.CREATE, before=None),
    )


def sequence_of_half(half: HalfUpdate, report: Report) -> int | None:
    """Return the sequence that joins a half to its partner; ``None`` when nothing does."""
    sequence = sequence_of(half.change.position, report)
    if half.pair is None:
        report(("half", "only a sequence joins the halves of an update"))
        return None
    if half.pair != str(sequence):
        report(("pair", "not the sequence of the change"))
        return None
    if half.other_key is not None:
        report(("other_key", "not written"))
    return sequence


def milliseconds(value_ns: int | None, field: str, report: Report) -> int | None:
    """Return a time as it is written; ``None`` when there is none.

    Times before 1970 are reported: a negative number means that the time is not known.
    """
    if value_ns is None:
        return None
    if value_ns < 0:
        report((field, "before 1970, where a negative number means unknown"))
        return None
    return value_ns // 1_000_000
