# SPDX-License-Identifier: Apache-2.0
"""The wire class of Flink's changelog, and the kinds of rows."""

from typing import Any, Final

import msgspec

from changelane.event import Op

INSERT: Final = "+I"
BEFORE: Final = "-U"
AFTER: Final = "+U"
DELETE: Final = "-D"

KINDS: Final = {
    INSERT: Op.CREATE,
    BEFORE: Op.DELETE,
    AFTER: Op.UPDATE,
    DELETE: Op.DELETE,
}
"""The kind of a row -> the operation."""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """A message."""

    data: dict[str, Any]
    op: str
