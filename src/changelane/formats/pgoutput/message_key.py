# SPDX-License-Identifier: Apache-2.0
"""The message key: an LSN in eight bytes.

A message that changelane writes has one event of a transaction. Its key is the LSN of the commit,
and the number of the event in its transaction in four more bytes, which no other message states.
"""

import struct
from typing import Final

from changelane.formats.contract.postgres_log import lsn_of
from changelane.position import SequencePosition

_PLACE: Final = struct.Struct(">QI")
_NUMBERS: Final = 1 << 32


def number_of(key: bytes | None) -> int | None:
    """Return the number of an event in its transaction; ``None`` if the key has none."""
    if key is None or len(key) != _PLACE.size:
        return None
    number: int = _PLACE.unpack(key)[1]
    return number


def key_of(position: object) -> bytes | None:
    """Return the key of an event; ``None`` if its position has no such form."""
    lsn = lsn_of(position)
    if not lsn or not isinstance(position, SequencePosition) or not 0 <= position.row < _NUMBERS:
        return None
    return _PLACE.pack(lsn, position.row)
