# SPDX-License-Identifier: Apache-2.0
"""A cache of function results by the identity of the argument."""

from collections.abc import Callable
from typing import Any, Final

_MEMO_SIZE: Final = 4096


class Memo:
    """Caches the results of a function by the identity of its argument.

    Events of one format share their frozen parts (tables, sources, schemas). The cache keeps the
    argument, so that no other object gets its ``id``.
    """

    __slots__ = ("_cache", "_function")

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._cache: dict[int, tuple[Any, Any]] = {}

    def __call__(self, part: Any) -> Any:
        entry = self._cache.get(id(part))
        if entry is not None and entry[0] is part:
            return entry[1]
        result = self._function(part)
        if len(self._cache) >= _MEMO_SIZE:
            self._cache = {}
        self._cache[id(part)] = (part, result)
        return result
