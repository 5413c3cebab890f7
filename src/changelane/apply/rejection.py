# SPDX-License-Identifier: Apache-2.0
"""Why a step is not applied."""

from typing import Final, NamedTuple

from changelane.apply.operations import Step

TOO_LATE: Final = "too_late"
AMBIGUOUS: Final = "ambiguous_key_move"
UNORDERED: Final = "unordered"


class Problem(NamedTuple):
    """A step that was not applied, and why; it belongs into the quarantine."""

    key: bytes | None
    code: str
    step: Step
