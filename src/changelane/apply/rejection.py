# SPDX-License-Identifier: Apache-2.0
"""The reasons why an operation is rejected."""

from typing import Final, NamedTuple

from changelane.apply.operations import RowOperation
from changelane.reason_codes import ReasonCode

TOO_LATE: Final = ReasonCode.TOO_LATE
AMBIGUOUS: Final = ReasonCode.AMBIGUOUS_KEY_MOVE
UNORDERED: Final = ReasonCode.UNORDERED


class Rejection(NamedTuple):
    """A rejected operation and the reason; its event is quarantined."""

    key: bytes | None
    code: ReasonCode
    operation: RowOperation
