# SPDX-License-Identifier: Apache-2.0
"""A cache with a limit."""

from typing import TypeVar

Key = TypeVar("Key")
Result = TypeVar("Result")


class BoundedCache(dict[Key, Result]):
    """A dict that drops all its entries when it is full. Threads may share it."""

    __slots__ = ("_limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def add(self, key: Key, result: Result) -> Result:
        """Store a result, and return it."""
        if len(self) >= self._limit:
            self.clear()
        self[key] = result
        return result
