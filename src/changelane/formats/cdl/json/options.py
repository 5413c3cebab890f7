# SPDX-License-Identifier: Apache-2.0
"""The options of ``cdl-json``, and the constants of its messages."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from changelane.event import Op, Source
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows.modes import Modes, TimePrecisionMode


class Owner(StrEnum):
    """The part of a table's name in SEG_OWNER."""

    AUTO = "auto"
    """``database`` for products without schemas, else ``schema``."""
    SCHEMA = "schema"
    """"Schema of the database to be synchronized" (the documentation's table of fields)."""
    DATABASE = "database"
    """For sources without schemas, such as MySQL."""

    def of(self, product: str | None) -> str:
        """Return the part of the names of a product's tables: ``schema`` or ``database``."""
        if self is Owner.AUTO:
            return "database" if product in WITHOUT_SCHEMAS else "schema"
        return self.value


class LobNulls(StrEnum):
    """The interpretation of NULL in a column of LOB_COLUMNS, in an update or a delete."""

    UNAVAILABLE = "unavailable"
    """The value was not sent."""
    NULL = "null"
    """The value is NULL; only a missing column was not sent."""


class Timestamps(StrEnum):
    """The form of written local timestamps."""

    AUTO = "auto"
    """``connect`` for columns with at most milliseconds, else ``text``: always exact."""
    CONNECT = "connect"
    """Milliseconds, as in the documentation's sample."""
    TEXT = "text"
    """Text with all digits, with the semantic name of the vendor's other format."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``cdl-json``.

    Attributes:
        before_image: The columns with real values in before images of deletes and key changes.
        placeholder: The producer's placeholder for an unavailable value.
        owner: The part of a table's name in SEG_OWNER.
        heartbeat_table: Changes of this table are heartbeats; empty = no such table.
        vendor: The prefix of the vendor's semantic names of types, when they are written.
        timestamps: Form of written local timestamps.
        lob_nulls: The interpretation of NULL in a column of LOB_COLUMNS.
    """

    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    owner: Owner = Owner.AUTO
    heartbeat_table: str = "cdc_cdl.cdc_heartbeat"
    vendor: str = "com.huawei"
    timestamps: Timestamps = Timestamps.AUTO
    lob_nulls: LobNulls = LobNulls.UNAVAILABLE


ORIGIN: Final = Source(connector="cdl")
VERSION: Final = "1.0"
MESSAGE_TYPE: Final = "0"
FILLERS: Final = frozenset({"postgresql", "opengauss"})
"""Products with only the primary key in deletes: "PG sources with default replica identity"."""

WITHOUT_SCHEMAS: Final = frozenset({"mysql", "mariadb"})
"""Products whose tables are in databases without schemas."""

OPERATIONS: Final = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}

_SEPARATORS: Final = re.compile(r"[,;\s]+")


def lob_names(text: str | None) -> tuple[str, ...]:
    """Return the names in LOB_COLUMNS; their separator is not documented.

    >>> lob_names("photo, cv;note")
    ('photo', 'cv', 'note')
    """
    return tuple(name for name in _SEPARATORS.split(text or "") if name)


def modes_of(options: Options, *, exact: bool = False) -> Modes:
    """Return the forms of written columns; *exact* = for columns with more than milliseconds."""
    as_text = {Timestamps.AUTO: exact, Timestamps.CONNECT: False, Timestamps.TEXT: True}
    return Modes(
        TimePrecisionMode.CONNECT,
        vendor=options.vendor,
        vendor_timestamps=as_text[options.timestamps],
    )
