# SPDX-License-Identifier: Apache-2.0
"""The options of ``maxwell-json``."""

from enum import StrEnum

import msgspec


class Nulls(StrEnum):
    """Maxwell's ``output_nulls``."""

    KEPT = "kept"
    """NULL is written as null."""
    DROPPED = "dropped"
    """A column that is NULL is omitted, in ``data`` and in ``old``."""


class RowImage(StrEnum):
    """MySQL's ``binlog_row_image``."""

    AUTO = "auto"
    """Unknown: ``data`` is read as a whole row, but a missing column is not read as NULL."""
    FULL = "full"
    """``data`` has all columns."""
    MINIMAL = "minimal"
    """``MINIMAL`` or ``NOBLOB``: ``data`` has the key and the changed columns."""


class Order(StrEnum):
    """The order of the changes."""

    POSITION = "position"
    """``position``, if the messages have it."""
    OFFSET = "offset"
    """The offset in the partition, also for messages with a ``position``."""


class KeyFormat(StrEnum):
    """Maxwell's ``kafka_key_format``."""

    HASH = "hash"
    ARRAY = "array"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``maxwell-json``.

    Attributes:
        nulls: The messages omit NULL (``dropped``), or not (``kept``).
        row_image: The columns in the database's log.
        order: The order of changes: by their position, or by the offset of their messages.
        key_format: The written form of message keys.
        primary_key_columns: Write ``primary_key_columns``, also if the message key has the names.
        time_zone: The zone in which instants are written, which is that of Maxwell's JVM: a name of
            the time zone database or an offset such as ``+08:00``.
    """

    nulls: Nulls = Nulls.KEPT
    row_image: RowImage = RowImage.AUTO
    order: Order = Order.POSITION
    key_format: KeyFormat = KeyFormat.HASH
    primary_key_columns: bool = False
    time_zone: str = "UTC"
