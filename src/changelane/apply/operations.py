# SPDX-License-Identifier: Apache-2.0
"""The operations of an event on the rows of a table."""

from collections.abc import Mapping

import msgspec

from changelane.types import Value


class Upsert(msgspec.Struct, frozen=True):
    """A row exists and has these values.

    Attributes:
        key: Canonical key bytes; ``None`` if the table has no key.
        order: The order of the event, with phase 1.
        values: The columns that the event contains.
        is_full_row: The event sets the full row: a column that it does not contain is NULL.
        moved_from: The key of the row before this key change.
        transaction: The id of the transaction.
        before: The columns of the before image.
        inserts: The row did not exist before.
    """

    key: bytes | None
    order: bytes
    values: Mapping[str, Value]
    is_full_row: bool
    moved_from: bytes | None = None
    transaction: str | None = None
    before: Mapping[str, Value] | None = None
    inserts: bool = False


class KeyDelete(msgspec.Struct, frozen=True):
    """The row of a key is deleted, or moved to another key.

    Attributes:
        order: The order of the event, with phase 0.
        before: The columns of the before image, which identify the deleted row.
    """

    key: bytes
    order: bytes
    moved_to: bytes | None = None
    before: Mapping[str, Value] | None = None
    transaction: str | None = None


class TableTruncate(msgspec.Struct, frozen=True):
    """All rows up to this order are deleted."""

    order: bytes


RowOperation = Upsert | KeyDelete | TableTruncate
