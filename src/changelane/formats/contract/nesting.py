# SPDX-License-Identifier: Apache-2.0
"""The limit of nested values, the same for all formats.

Without a limit the depth of Python's stack decides: a value that one format reads could not be
written in another format, nor into the file of failures.
"""

import gc
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from changelane.event import ChangeEvent, DataChange, HalfUpdate, Tombstone

MOST_NESTED: Final = 200
"""The most levels of arrays and objects in a value; ``[]`` is one level."""
REASON: Final = f"nested more than {MOST_NESTED} levels deep"

_CONTAINERS: Final = frozenset({dict, list, tuple})
_MOST_NESTED_DETAILS: Final = MOST_NESTED + 8
"""The most levels in details, which keep a value with the objects around it."""

# The garbage collector does not track a mapping without containers: most rows are such mappings.
_may_nest: Final = gc.is_tracked


def too_deep(event: ChangeEvent) -> str | None:
    """Return the name of a column or further field with a value nested too deeply, if any.

    The event's images and details are searched. Defaults in its schema are not: only a nested
    column type has nested defaults, and the depth of types is limited.
    """
    if isinstance(event, HalfUpdate):
        return _deep_member(event.other_key or {}) or too_deep(event.change)
    column: str | None = None
    if type(event) is DataChange:
        if (before := event.before) is not None:
            column = deep_column(before)
        if (after := event.after) is not None:
            column = column or deep_column(after)
    elif type(event) is Tombstone:
        column = _deep_member(event.key or {}) or _deep_member(event.moved_to or {})
    if _may_nest(details := event.details):
        column = column or _deep_member(details, _MOST_NESTED_DETAILS)
    return column


def deep_column(image: Mapping[str, Any]) -> str | None:
    """Return the name of a column with a value nested too deeply, if any."""
    return _deep_member(image) if _may_nest(image) else None


def _deep_member(image: Mapping[str, Any], limit: int = MOST_NESTED) -> str | None:
    for name, value in image.items():
        if type(value) in _CONTAINERS and _may_nest(value) and is_too_deep(value, limit):
            return name
    return None


def is_too_deep(value: object, limit: int = MOST_NESTED) -> bool:
    """Return whether a value has more than *limit* levels of arrays and objects.

    >>> is_too_deep([[1], {"a": 2}], limit=2), is_too_deep([[1], {"a": []}], limit=2)
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
