# SPDX-License-Identifier: Apache-2.0
"""The settings of a connector that change how it writes the values of a type."""

from enum import StrEnum

import msgspec


class TimePrecisionMode(StrEnum):
    """The form of dates and times: Debezium's ``time.precision.mode``."""

    AUTO = "auto"
    """``adaptive_time_microseconds`` for MySQL, MariaDB and unknown products, else ``adaptive``."""
    ADAPTIVE = "adaptive"
    ADAPTIVE_TIME_MICROSECONDS = "adaptive_time_microseconds"
    CONNECT = "connect"
    ISOSTRING = "isostring"
    MICROSECONDS = "microseconds"
    NANOSECONDS = "nanoseconds"


class DecimalFormat(StrEnum):
    """The form of decimals: Connect's ``decimal.format``, or Debezium's ``string`` mode."""

    BASE64 = "base64"
    NUMERIC = "numeric"
    STRING = "string"


class BinaryMode(StrEnum):
    """The form of bytes: Debezium's ``binary.handling.mode``."""

    BYTES = "bytes"
    """Base64 under the literal type ``bytes`` of Connect."""
    BASE64 = "base64"
    BASE64_URL_SAFE = "base64-url-safe"
    HEX = "hex"


class Modes(msgspec.Struct, frozen=True):
    """The forms that a writer chooses.

    Attributes:
        time: The form of dates and times.
        decimals: The form of decimals.
        binary: The form of bytes.
        vendor: The prefix of a vendor's semantic names, such as ``com.huawei``: decimals are text
            with its name ``.cdc.data.Decimal``. Empty for the names of Debezium.
        vendor_timestamps: Local timestamps are text with the vendor's ``.cdc.data.timestamp``.
        source_types: Schemas have the source types of columns.
        binlog: The source is MySQL or MariaDB, whose connectors have fewer integer types.
    """

    time: TimePrecisionMode = TimePrecisionMode.ADAPTIVE
    decimals: DecimalFormat = DecimalFormat.BASE64
    binary: BinaryMode = BinaryMode.BYTES
    vendor: str = ""
    vendor_timestamps: bool = False
    source_types: bool = True
    binlog: bool = False


def modes_of(
    time: TimePrecisionMode,
    decimals: DecimalFormat,
    product: str | None,
    binary: BinaryMode = BinaryMode.BYTES,
    *,
    source_types: bool = True,
) -> Modes:
    """Return the modes for a product."""
    binlog = product in {"mysql", "mariadb"}
    if time is TimePrecisionMode.AUTO:
        time = TimePrecisionMode.ADAPTIVE
        if binlog or product is None:
            time = TimePrecisionMode.ADAPTIVE_TIME_MICROSECONDS
    return Modes(time, decimals, binary, binlog=binlog, source_types=source_types)
