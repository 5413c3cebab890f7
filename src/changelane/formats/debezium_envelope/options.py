# SPDX-License-Identifier: Apache-2.0
"""The options of ``debezium-json``, and what a member of the family does differently."""

from enum import StrEnum

import msgspec

from changelane.formats.contract.capabilities import AbsentMeans
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


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What a member of the family does differently, as data.

    Attributes:
        absent_means: What a column means that an image does not have.
        fillers: Products whose before images hold fillers beside the key.
        tombstones: The producer writes tombstones.
        heartbeat_prefix: What its heartbeat topics start with.
    """

    name: str = "debezium"
    absent_means: AbsentMeans = AbsentMeans.UNCHANGED
    fillers: frozenset[str] = frozenset({"postgresql"})
    tombstones: bool = True
    heartbeat_prefix: str = "__debezium-heartbeat"


STANDARD = Dialect()
