# SPDX-License-Identifier: Apache-2.0
"""The options of ``debezium-flat-json``: those of the transformation, under its names."""

from enum import StrEnum
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows.modes import (
    DecimalFormat,
    Modes,
    TimePrecisionMode,
    modes_of,
)


class Deletes(StrEnum):
    """What the transformation makes of deletes: its ``delete.tombstone.handling.mode``."""

    AUTO = "auto"
    """Read any; write ``rewrite``."""
    DROP = "drop"
    """Nothing tells a delete."""
    TOMBSTONE = "tombstone"
    """The delete is dropped, and its tombstone is kept."""
    REWRITE = "rewrite"
    """The delete is a row with ``__deleted``, and its tombstone is dropped."""
    REWRITE_WITH_TOMBSTONE = "rewrite-with-tombstone"
    """The delete is a row with ``__deleted``, and its tombstone is kept."""
    DELETE_TO_TOMBSTONE = "delete-to-tombstone"
    """The delete becomes a tombstone, and the connector's own tombstone is dropped."""


REWRITTEN: Final = frozenset({Deletes.AUTO, Deletes.REWRITE, Deletes.REWRITE_WITH_TOMBSTONE})
"""Modes whose rows have ``__deleted``."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``debezium-flat-json``.

    Attributes:
        delete_tombstone_handling_mode: What is made of deletes.
        add_fields: Debezium's ``add.fields``: what of the envelope stands beside the columns,
            such as ``op,table,source.ts_ms:at``. Empty = whatever an event tells.
        add_fields_prefix: What the names of these start with.
        add_headers: Debezium's ``add.headers``, in the same notation. Empty = none are written.
        add_headers_prefix: What the names of these start with.
        table: The name of the table, where no added field tells it: ``name``, ``schema.name`` or
            ``database.schema.name``.
        topic: Parts of the topic's name, such as ``server.schema.table``, where nothing else
            tells them; empty = its last part is the table.
        before_image: How far the row of a delete is to be believed.
        placeholder: Debezium's ``unavailable.value.placeholder``.
        schemas_enable: Write schema blocks where the columns are known.
        time_precision_mode: Form of dates and times, when they are written.
        decimal_format: Form of decimals, when they are written.
    """

    delete_tombstone_handling_mode: Deletes = Deletes.AUTO
    add_fields: str = ""
    add_fields_prefix: str = "__"
    add_headers: str = ""
    add_headers_prefix: str = "__"
    table: str = ""
    topic: str = ""
    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    schemas_enable: bool = True
    time_precision_mode: TimePrecisionMode = TimePrecisionMode.AUTO
    decimal_format: DecimalFormat = DecimalFormat.BASE64


def row_modes(options: Options) -> Modes:
    """Return how columns are written: no row tells its product, so that none matters."""
    return modes_of(options.time_precision_mode, options.decimal_format, None)


_PARTS: Final = {"server": "name", "database": "db", "schema": "schema", "table": "table"}


def topic_parts(pattern: str) -> tuple[str, ...]:
    """Return the source fields that the parts of a topic's name are.

    Raises:
        ConfigError: A part has another name, or the last one is not the table.
    """
    names = tuple(pattern.split(".")) if pattern else ("table",)
    if names[-1] != "table" or len(set(names)) != len(names) or not _PARTS.keys() >= set(names):
        msg = "topic: not parts among server, database and schema, and table at the end"
        raise ConfigError(msg)
    return tuple(_PARTS[name] for name in names)


def table_parts(text: str) -> dict[str, str]:
    """Return the source fields that a table's name tells.

    Raises:
        ConfigError: It has more than three parts, or an empty one.
    """
    if not text:
        return {}
    parts = text.split(".")
    if len(parts) > 3 or not all(parts):
        msg = "table: not name, schema.name or database.schema.name"
        raise ConfigError(msg)
    return dict(zip(("table", "schema", "db"), reversed(parts), strict=False))
