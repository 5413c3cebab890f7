# SPDX-License-Identifier: Apache-2.0
"""The sequence that numbers the changes of one task, and the two halves of an update.

"_sequence_id_: A unique message ID of the STRING type, consisting of digits. The UPDATE_BEFOR and
UPDATE_AFTER operations for the same update share a sequence ID."
https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats

In the samples, a sequence is a time in milliseconds and a counter of six digits. Sequences are
compared as numbers, not as text, and only inside one task.
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

_MOST_DIGITS: Final = 36
_SEQUENCE: Final = re.compile(rf"[0-9]{{1,{_MOST_DIGITS}}}|{FULL_LOAD}")


def read_sequence(value: str | int | None, path: str) -> int | None:
    """Return a sequence as a number; ``None`` if the field is empty.

    Raises:
        DecodeError: The sequence does not consist of digits.
    """
    if value is None or value == "":
        return None
    text = str(value)
    if _SEQUENCE.fullmatch(text) is None:
        raise DecodeError(
            "the sequence must consist of digits", code=ReasonCode.WRONG_TYPE, path=path
        )
    return int(text)


def sequence_of(position: Position | None, report: Report) -> int | None:
    """Return the sequence of a position; ``None`` if the position has none."""
    if not isinstance(position, SequencePosition):
        return None
    if position.row:
        report(("position.row", "a sequence has no rows"))
    if not FULL_LOAD <= position.value < 10**_MOST_DIGITS:
        report(("position", f"a sequence consists of at most {_MOST_DIGITS} digits"))
        return None
    return position.value


def half_of(change: DataChange, sequence: int) -> HalfUpdate:
    """Return a change as the half of an update, joined by its sequence."""
    return HalfUpdate(change, pair=str(sequence))


def halves_of(update: DataChange) -> tuple[DataChange, DataChange]:
    """Return the before image of an update as a delete, and the after image as a create."""
    replace = msgspec.structs.replace
    return (
        replace(update, op=Op.DELETE, after=None),
        replace(update, op=Op.CREATE, before=None),
    )


def sequence_of_half(half: HalfUpdate, report: Report) -> int | None:
    """Return the sequence that joins a half to the other half; ``None`` if no sequence does."""
    sequence = sequence_of(half.change.position, report)
    if half.pair is None:
        report(("half", "the format joins halves by a sequence only"))
        return None
    if half.pair != str(sequence):
        report(("pair", "not the sequence of the change"))
        return None
    if half.other_key is not None:
        report(("other_key", "not written"))
    return sequence


def milliseconds(value_ns: int | None, field: str, report: Report) -> int | None:
    """Return a time in milliseconds; ``None`` if it is unknown.

    A time before 1970 is a loss, because a negative number is an unknown time in this format.
    """
    if value_ns is None:
        return None
    if value_ns < 0:
        report((field, "before 1970; a negative number is an unknown time"))
        return None
    return value_ns // 1_000_000
