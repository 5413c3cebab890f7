# SPDX-License-Identifier: Apache-2.0
"""The reasons why an operation is rejected."""

from typing import Final, NamedTuple

from changelane.apply.operations import RowOperation

TOO_LATE: Final = "too_late"
AMBIGUOUS: Final = "ambiguous_key_move"
UNORDERED: Final = "unordered"


class Rejection(NamedTuple):
    """An operation that is not applied, and the reason; it belongs in the quarantine."""

    key: bytes | None
    code: str
    operation: RowOperation
