# SPDX-License-Identifier: Apache-2.0
"""The fields of a DTS record before its images, read from its binary form."""

import msgspec

from changelane.formats.contract.avro_binary import read_count, read_long, read_text
from changelane.formats.dts.avro import OPERATIONS, SOURCE_TYPES


class Head(msgspec.Struct):
    """The fields of a record up to ``tags``, with the producer's names, without ``version``."""

    id: int
    sourceTimestamp: int  # noqa: N815
    sourcePosition: str  # noqa: N815
    safeSourcePosition: str  # noqa: N815
    sourceTxid: str  # noqa: N815
    sourceType: str  # noqa: N815
    sourceVersion: str  # noqa: N815
    operation: str
    objectName: str | None  # noqa: N815
    processTimestamps: list[int] | None  # noqa: N815
    tags: dict[str, str]


def read_head(data: bytes) -> tuple[Head, int]:
    """Return the record up to its tags, and their end."""
    at = 1 if data[0] < 128 else read_long(data, 0)[1]
    number, at = read_long(data, at)
    source_time, at = read_long(data, at)
    position, at = read_text(data, at)
    safe_position, at = read_text(data, at)
    txid, at = read_text(data, at)
    source_type = SOURCE_TYPES[_symbol(data[at])]
    version, at = read_text(data, at + 1)
    operation = OPERATIONS[_symbol(data[at])]
    at += 1
    object_name: str | None = None
    if data[at] == 2:
        object_name, at = read_text(data, at + 1)
    else:
        at = _null(data, at)
    times: list[int] | None = None
    if data[at] == 2:
        times, at = _longs(data, at + 1)
    else:
        at = _null(data, at)
    tags: dict[str, str] = {}
    while True:
        count, at = read_count(data, at)
        if not count:
            break
        for _ in range(count):
            name, at = read_text(data, at)
            tags[name], at = read_text(data, at)
    head = Head(
        number,
        source_time,
        position,
        safe_position,
        txid,
        source_type,
        version,
        operation,
        object_name,
        times,
        tags,
    )
    return head, at


def _symbol(byte: int) -> int:
    if byte & 0x81:
        raise ValueError
    return byte >> 1


def _null(data: bytes, at: int) -> int:
    if data[at]:
        raise ValueError
    return at + 1


def _longs(data: bytes, at: int) -> tuple[list[int], int]:
    offsets: list[int] = []
    while True:
        count, at = read_count(data, at)
        if not count:
            return offsets, at
        for _ in range(count):
            number, at = read_long(data, at)
            offsets.append(number)


def read_fields(data: bytes, at: int) -> tuple[tuple[tuple[str, int | None], ...], int]:
    """Return the names and numbers of the columns, and their end."""
    fields: list[tuple[str, int | None]] = []
    while True:
        count, at = read_count(data, at)
        if not count:
            return tuple(fields), at
        for _ in range(count):
            name, at = read_text(data, at)
            number, at = read_long(data, at)
            fields.append((name, number))
