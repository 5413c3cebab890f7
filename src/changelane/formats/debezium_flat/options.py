# SPDX-License-Identifier: Apache-2.0
"""The options of ``debezium-flat-json``, with the transformation's names."""

from enum import StrEnum
from typing import Final

from changelane.errors import ConfigError
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.registry.options import SerdeOptions
from changelane.formats.debezium_envelope.rows.modes import (
    DecimalFormat,
    Modes,
    TimePrecisionMode,
    modes_of,
)


class Deletes(StrEnum):
    """The form of deletes: the transformation's ``delete.tombstone.handling.mode``."""

    AUTO = "auto"
    """Read any; write ``rewrite``."""
    DROP = "drop"
    """Deletes and tombstones are dropped."""
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


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``debezium-flat-json``, beside those of its serde.

    Attributes:
        delete_tombstone_handling_mode: The form of deletes.
        add_fields: Debezium's ``add.fields``: fields of the envelope beside the columns, such as
            ``op,table,source.ts_ms:at``. Empty = all fields that an event has.
        add_fields_prefix: The prefix of the names of added fields.
        add_headers: Debezium's ``add.headers``, in the same notation. Empty = none are written.
        add_headers_prefix: The prefix of the names of added headers.
        table: The name of the table, for rows without added fields for it: ``name``,
            ``schema.name`` or ``database.schema.name``.
        topic: The parts of the topic's name, such as ``server.schema.table``, for rows without
            added fields for them; empty = the last part is the table.
        before_image: The columns of a deleted row with real values.
        placeholder: Debezium's ``unavailable.value.placeholder``.
        schemas_enable: Write schema blocks if the columns are known.
        time_precision_mode: Written form of dates and times.
        decimal_format: Written form of decimals.
        source_types: Write the source types of columns into schema blocks, as with Debezium's
            ``column.propagate.source.type``.
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
    source_types: bool = True


def row_modes(options: Options) -> Modes:
    """Return the forms of written columns; they do not depend on the product, which rows lack."""
    return modes_of(
        options.time_precision_mode,
        options.decimal_format,
        None,
        source_types=options.source_types,
    )


_PARTS: Final = {"server": "name", "database": "db", "schema": "schema", "table": "table"}


def topic_parts(pattern: str) -> tuple[str, ...]:
    """Return the source fields of the parts of a topic's name.

    Raises:
        ConfigError: A part has another name, or the last part is not the table.
    """
    names = tuple(pattern.split(".")) if pattern else ("table",)
    if names[-1] != "table" or len(set(names)) != len(names) or not _PARTS.keys() >= set(names):
        msg = "topic: the parts must be some of server, database and schema, and table at the end"
        raise ConfigError(msg)
    return tuple(_PARTS[name] for name in names)


def table_parts(text: str) -> dict[str, str]:
    """Return the source fields of the parts of a table's name.

    Raises:
        ConfigError: The name has more than three parts, or an empty part.
    """
    if not text:
        return {}
    parts = text.split(".")
    if len(parts) > 3 or not all(parts):
        msg = "table: the value must be name, schema.name or database.schema.name"
        raise ConfigError(msg)
    return dict(zip(("table", "schema", "db"), reversed(parts), strict=False))
