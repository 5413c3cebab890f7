# SPDX-License-Identifier: Apache-2.0
"""How deep a value may be nested: as deep in each format, so that each can write what one reads.

Without a limit the depth of Python's stack decides, and a value that one format reads cannot be
written by the next one, nor into the file of failures.
"""

import gc
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from changelane.event import ChangeEvent, DataChange, HalfUpdate, Tombstone

MOST_NESTED: Final = 200
"""Arrays and objects inside each other that a value may have; ``[]`` is one."""
REASON: Final = f"nested more than {MOST_NESTED} levels deep"

_CONTAINERS: Final = frozenset({dict, list, tuple})
_MOST_KEPT: Final = MOST_NESTED + 8
"""Of details, which keep a value inside of what stood around it."""

# A mapping that the collector does not track holds no container: most rows are known by that.
_may_nest: Final = gc.is_tracked


def too_deep(event: ChangeEvent) -> str | None:
    """Return the column, or the producer's own field, whose value is nested too deeply, if any.

    The event's images and details are searched, and the defaults of its schema are not: those that
    are nested are of a column type, which is limited itself.
    """
    if isinstance(event, HalfUpdate):
        return _deep_member(event.other_key or {}) or too_deep(event.change)
    column: str | None = None
    if type(event) is DataChange:
        if (before := event.before) is not None and _may_nest(before):
            column = _deep_member(before)
        if (after := event.after) is not None and _may_nest(after):
            column = column or _deep_member(after)
    elif type(event) is Tombstone:
        column = _deep_member(event.key or {}) or _deep_member(event.moved_to or {})
    if _may_nest(details := event.details):
        column = column or _deep_member(details, _MOST_KEPT)
    return column


def _deep_member(image: Mapping[str, Any], limit: int = MOST_NESTED) -> str | None:
    for name, value in image.items():
        if type(value) in _CONTAINERS and _may_nest(value) and is_too_deep(value, limit):
            return name
    return None


def is_too_deep(value: object, limit: int = MOST_NESTED) -> bool:
    """Say whether a value has more than *limit* arrays and objects inside each other.

    >>> is_too_deep([[1], {"a": 2}], most=2), is_too_deep([[1], {"a": []}], most=2)
    (False, True)
    """
    level: Collection[Any] = [value]
    for _ in range(limit + 1):
        level = [inner for inner in level if type(inner) in _CONTAINERS]
        if not level:
            return False
        level = [item for inner in level for item in _items(inner)]
    return True


def _items(container: Any) -> Iterable[Any]:
    return container.values() if type(container) is dict else container
