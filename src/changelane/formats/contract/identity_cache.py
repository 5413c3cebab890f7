# SPDX-License-Identifier: Apache-2.0
"""Results that are remembered by the identity of what they were made of."""

from collections.abc import Callable
from typing import Any, Final

_MEMO_SIZE: Final = 4096


class Memo:
    """Remembers what a function returns for objects that come again and again.

    Formats share the frozen parts of their events (tables, sources, schemas), so that identity
    finds them; the object is kept, so that its identity cannot be taken by another.
    """

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._found: dict[int, tuple[Any, Any]] = {}

    def __call__(self, part: Any) -> Any:
        entry = self._found.get(id(part))
        if entry is not None and entry[0] is part:
            return entry[1]
        result = self._make(part)
        if len(self._found) >= _MEMO_SIZE:
            self._found = {}
        self._found[id(part)] = (part, result)
        return result
