# SPDX-License-Identifier: Apache-2.0
"""The options of ``cdl-json``, and what all its messages have in common."""

import re
from enum import StrEnum
from typing import Final

import msgspec

from changelane.event import Op, Source
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows.modes import Modes, TimePrecisionMode


class Owner(StrEnum):
    """Which part of a table's name SEG_OWNER is."""

    SCHEMA = "schema"
    """"Schema of the database to be synchronized" (seed 001, Table 1)."""
    DATABASE = "database"
    """For sources whose tables lie in databases, such as MySQL."""


class Timestamps(StrEnum):
    """How local timestamps are written."""

    AUTO = "auto"
    """``connect`` where the column has no more than milliseconds, else ``text``: exact."""
    CONNECT = "connect"
    """Milliseconds, as the documentation shows."""
    TEXT = "text"
    """Text with all digits, under the name that the vendor's other format has for it."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``cdl-json``.

    Attributes:
        before_image: How far before images of deletes, and of updates that change the key, are to
            be believed.
        placeholder: What the producer writes for a value that it did not get.
        owner: Which part of a table's name SEG_OWNER is.
        heartbeat_table: Changes of this table are heartbeats; empty = there is none.
        vendor: What the vendor's own names of types start with, when they are written.
        timestamps: Form of local timestamps, when they are written.
    """

    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    owner: Owner = Owner.SCHEMA
    heartbeat_table: str = "cdc_cdl.cdc_heartbeat"
    vendor: str = "com.huawei"
    timestamps: Timestamps = Timestamps.AUTO


ORIGIN: Final = Source(connector="cdl")
VERSION: Final = "1.0"
MESSAGE_TYPE: Final = "0"
FILLERS: Final = frozenset({"postgresql", "opengauss"})
"""Products whose deletes tell the primary key only (CDL:doc, replica identity)."""

OPERATIONS: Final = {"INSERT": Op.CREATE, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}

_SEPARATORS: Final = re.compile(r"[,;\s]+")


def listed(text: str | None) -> tuple[str, ...]:
    """Return the names in LOB_COLUMNS, whose separator no document tells.

    >>> listed("photo, cv;note")
    ('photo', 'cv', 'note')
    """
    return tuple(name for name in _SEPARATORS.split(text or "") if name)


def modes_of(options: Options, *, exact: bool = False) -> Modes:
    """Return how columns are written; *exact*: those with more digits than milliseconds."""
    as_text = {Timestamps.AUTO: exact, Timestamps.CONNECT: False, Timestamps.TEXT: True}
    return Modes(
        TimePrecisionMode.CONNECT,
        vendor=options.vendor,
        vendor_timestamps=as_text[options.timestamps],
    )
