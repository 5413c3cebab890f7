# SPDX-License-Identifier: Apache-2.0
"""Readers of Avro data: each returns the JSON value that Connect's JSON converter writes.

A reader takes the data and a place in it, and returns the value with its end. Bytes stay bytes,
which the JSON encoder writes as Base64.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from changelane.formats.contract import avro_binary
from changelane.formats.contract.avro_binary import read_count
from changelane.types.values import float_form, plain, scaled

Read = Callable[[bytes, int], tuple[Any, int]]

NOT_A_DATUM: Final = (*avro_binary.NOT_A_DATUM, struct.error)
"""The exceptions for data that are not of their schema."""

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_LEAST_NORMAL: Final = 2.0**-126
"""Smaller 32-bit floats have fewer bits, and fewer digits."""
_MARK: Final = (0, 2)
"""The byte of each branch of a union of two."""


def read_boolean(data: bytes, at: int) -> tuple[bool, int]:
    """Return a boolean."""
    byte = data[at]
    if byte > 1:
        raise ValueError
    return byte == 1, at + 1


def read_float(data: bytes, at: int) -> tuple[float | str, int]:
    """Return a 32-bit float with the fewest digits that distinguish it, as Java prints it."""
    (number,) = _FLOAT.unpack_from(data, at)
    if not math.isfinite(number):
        return float_form(number), at + 4
    packed = data[at : at + 4]
    for digits in (6, 7, 8) if abs(number) >= _LEAST_NORMAL else range(2, 9):
        short = float(f"{number:.{digits}g}")
        if _FLOAT.pack(short) == packed:
            return short, at + 4
    return float(f"{number:.9g}"), at + 4


def read_double(data: bytes, at: int) -> tuple[float | str, int]:
    """Return a 64-bit float."""
    (number,) = _DOUBLE.unpack_from(data, at)
    return float_form(number), at + 8


def fixed_reader(size: int) -> Read:
    """Return the reader of bytes of a fixed length."""

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        return data[at:end], end

    return read


def enum_reader(symbols: Sequence[str]) -> Read:
    """Return the reader of an enum."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = avro_binary.read_long(data, at)
        if index < 0:
            raise ValueError
        return symbols[index], at

    return read


def optional_reader(value_branch: int, read_value: Read) -> Read:
    """Return the reader of a union of null and a type.

    Args:
        value_branch: The number of the branch that is not null: 0 or 1.
        read_value: The reader of that branch.
    """
    value_mark, null_mark = _MARK[value_branch], _MARK[1 - value_branch]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch = data[at]
        if branch == value_mark:
            return read_value(data, at + 1)
        if branch == null_mark:
            return None, at + 1
        raise ValueError

    return read


def union_reader(branches: Sequence[Read]) -> Read:
    """Return the reader of a union of several types."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = avro_binary.read_long(data, at)
        if branch < 0:
            raise ValueError
        return branches[branch](data, at)

    return read


def decimal_text_reader(branches: Sequence[object], scale: int) -> Read:
    """Return the reader of a union of decimals, their texts and null: its values are texts.

    Args:
        branches: The Avro type of each branch.
        scale: The scale of the decimals.
    """

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        branch, at = avro_binary.read_long(data, at)
        if branch < 0:
            raise ValueError
        match branches[branch]:
            case "null":
                return None, at
            case "bytes":
                unscaled, at = avro_binary.read_bytes(data, at)
                number = int.from_bytes(unscaled, "big", signed=True)
                return plain(scaled(number, scale)), at
            case _:
                return avro_binary.read_text(data, at)

    return read


def single_reader(read_value: Read) -> Read:
    """Return the reader of a union of one type."""

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if data[at] != _MARK[0]:
            raise ValueError
        return read_value(data, at + 1)

    return read


def record_reader(members: Sequence[tuple[str, Read]]) -> Read:
    """Return the reader of a record."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row: dict[str, Any] = {}
        for name, read_member in members:
            row[name], at = read_member(data, at)
        return row, at

    return read


def array_reader(read_item: Read) -> Read:
    """Return the reader of an array."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = read_count(data, at)
            if not count:
                return items, at
            for _ in range(count):
                item, at = read_item(data, at)
                items.append(item)

    return read


def map_reader(read_value: Read) -> Read:
    """Return the reader of a map whose keys are text."""

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}
        while True:
            count, at = read_count(data, at)
            if not count:
                return entries, at
            for _ in range(count):
                key, at = avro_binary.read_text(data, at)
                entries[key], at = read_value(data, at)

    return read


def pair_reader(read_key: Read, read_value: Read) -> Read:
    """Return the reader of an entry of a map whose keys are not text."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        key, at = read_key(data, at)
        value, at = read_value(data, at)
        return [key, value], at

    return read
