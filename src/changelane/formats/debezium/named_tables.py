# SPDX-License-Identifier: Apache-2.0
"""Options that say something of single tables."""

from collections.abc import Mapping
from typing import TypeVar

from changelane.schema import TableId

T = TypeVar("T")


def named(tables: Mapping[str, T], table: TableId) -> T | None:
    """Return what is said of a table, which is named in full or by its last parts.

    >>> named({"shop.orders": 1, "orders": 2}, TableId("db", "shop", "orders"))
    1
    """
    if not tables:
        return None
    parts = [part for part in (table.database, table.schema, table.name) if part]
    for first in range(len(parts)):
        found = tables.get(".".join(parts[first:]))
        if found is not None:
            return found
    return None
