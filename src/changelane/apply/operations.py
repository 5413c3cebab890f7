# SPDX-License-Identifier: Apache-2.0
"""What an event does to the rows of a table: steps."""

from collections.abc import Mapping

import msgspec

from changelane.types import Value


class Upsert(msgspec.Struct, frozen=True):
    """A row is there, with these values.

    Attributes:
        key: Canonical key bytes; ``None`` when the table has no key.
        order: Of phase 1.
        values: The columns that the event carries, and only these.
        whole: The event sets the whole row: a column that it does not name is NULL.
        moved_from: The key that the row had before this change of its key.
        transaction: The id of the transaction.
        before: The columns of the row that the event knows from before it.
        inserts: The row was not there before.
    """

    key: bytes | None
    order: bytes
    values: Mapping[str, Value]
    whole: bool
    moved_from: bytes | None = None
    transaction: str | None = None
    before: Mapping[str, Value] | None = None
    inserts: bool = False


class Departure(msgspec.Struct, frozen=True):
    """The row of a key went: deleted, or moved to another key.

    Attributes:
        order: Of phase 0.
        before: The columns of the row that the event knows, which name the occupant that left.
    """

    key: bytes
    order: bytes
    moved_to: bytes | None = None
    before: Mapping[str, Value] | None = None
    transaction: str | None = None


class TableTruncate(msgspec.Struct, frozen=True):
    """All rows up to here went."""

    order: bytes


Step = Upsert | Departure | TableTruncate
