# SPDX-License-Identifier: Apache-2.0
"""The options of ``debezium-json``."""

from enum import StrEnum
from typing import Final

import msgspec

from changelane.formats.debezium_envelope.rows.modes import (
    BinaryMode,
    DecimalFormat,
    TimePrecisionMode,
)


class BeforeImage(StrEnum):
    """How far a before image is to be believed."""

    AUTO = "auto"
    """``key`` for what Debezium tells of PostgreSQL, else ``full``."""
    FULL = "full"
    """Every column is real: REPLICA IDENTITY FULL, ``binlog_row_image=FULL``."""
    KEY = "key"
    """Only the key's columns are real; the others may be fillers."""


class Tombstones(StrEnum):
    """Whether a tombstone follows a delete."""

    AUTO = "auto"
    """Yes, except after what Debezium told, by its version: its stream brings its own."""
    TRUE = "true"
    FALSE = "false"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``debezium-json``.

    Attributes:
        before_image: How far before images of updates and deletes are to be believed.
        placeholder: Debezium's ``unavailable.value.placeholder``; may start with ``hex:``;
            empty or ``null`` = no value is a placeholder.
        schemas: For messages without a schema block: table name (or its last parts) -> column ->
            type text, such as ``decimal(12,2)``, followed by ``key`` for a key column.
        schemas_enable: Write schema blocks where the columns are known.
        time_precision_mode: Form of dates and times, where no schema block tells.
        decimal_format: Form of decimals.
        binary_handling_mode: Form of bytes, where no schema block tells: Debezium's
            ``binary.handling.mode``.
        tombstones: Write a tombstone after a delete.
    """

    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    schemas: dict[str, dict[str, str]] = {}
    schemas_enable: bool = True
    time_precision_mode: TimePrecisionMode = TimePrecisionMode.AUTO
    decimal_format: DecimalFormat = DecimalFormat.BASE64
    binary_handling_mode: BinaryMode = BinaryMode.BYTES
    tombstones: Tombstones = Tombstones.AUTO


FILLER_PRODUCTS: Final = frozenset({"postgresql"})
"""Products whose before images may have fillers beside the key."""
