# SPDX-License-Identifier: Apache-2.0
"""The options of ``debezium-json``."""

from enum import StrEnum
from typing import Final

from changelane.formats.debezium_envelope.cloud_events import CloudEventsMode
from changelane.formats.debezium_envelope.registry.options import SerdeOptions
from changelane.formats.debezium_envelope.rows.modes import (
    BinaryMode,
    DecimalFormat,
    TimePrecisionMode,
)


class BeforeImage(StrEnum):
    """The columns of a before image that have real values."""

    AUTO = "auto"
    """``key`` for PostgreSQL, else ``full``."""
    FULL = "full"
    """All columns: REPLICA IDENTITY FULL, ``binlog_row_image=FULL``."""
    KEY = "key"
    """The key columns only; the others may have fillers."""


class Tombstones(StrEnum):
    """Whether a tombstone is written after a delete."""

    AUTO = "auto"
    """Yes, unless the event has Debezium's version: its stream contains the tombstone."""
    TRUE = "true"
    FALSE = "false"


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``debezium-json``, beside those of its serde.

    Attributes:
        before_image: The columns of before images (of updates and deletes) with real values.
        placeholder: Debezium's ``unavailable.value.placeholder``; may start with ``hex:``;
            empty or ``null`` = no value is a placeholder.
        schemas: For messages without a schema block: table name (or its last parts) -> column ->
            type text, such as ``decimal(12,2)``, followed by ``key`` for a key column.
        schemas_enable: Write schema blocks if the columns are known.
        time_precision_mode: Form of dates and times in messages without a schema block.
        decimal_format: Form of decimals.
        binary_handling_mode: Form of bytes in messages without a schema block: Debezium's
            ``binary.handling.mode``.
        source_types: Write the source types of columns into schema blocks, as with Debezium's
            ``column.propagate.source.type``.
        tombstones: Write a tombstone after a delete.
        cloud_events: Write CloudEvents: ``none``, ``structured``, or ``binary``. They are read in
            both modes without an option.
    """

    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    schemas: dict[str, dict[str, str]] = {}  # noqa: RUF012 - msgspec copies the default
    schemas_enable: bool = True
    time_precision_mode: TimePrecisionMode = TimePrecisionMode.AUTO
    decimal_format: DecimalFormat = DecimalFormat.BASE64
    binary_handling_mode: BinaryMode = BinaryMode.BYTES
    source_types: bool = True
    tombstones: Tombstones = Tombstones.AUTO
    cloud_events: CloudEventsMode = CloudEventsMode.NONE


FILLER_PRODUCTS: Final = frozenset({"postgresql"})
"""Products whose before images may have fillers beside the key."""
