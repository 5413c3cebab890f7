# SPDX-License-Identifier: Apache-2.0
"""The primitives of Avro's binary form (https://avro.apache.org/docs/1.12.0/specification/).

A reader takes the data and a place in it, and returns the value with its end. Arrays and maps are
written as one block with a positive count. Blocks with a negative count and a size are read, too.
"""

from typing import Final

NOT_A_DATUM: Final = (IndexError, ValueError)
"""The exceptions for data that end too early, a wrong length and bytes that are not UTF-8."""

_MOST_VARINT_BYTES: Final = 10


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return the zig-zag number at *at* and its end.

    Raises:
        IndexError: The data end inside the number.
        ValueError: The number has more than 64 bits.
    """
    byte = data[at]
    at += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 127, 7
    last = at + _MOST_VARINT_BYTES - 1
    while byte > 127:
        if at == last:
            raise ValueError
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
    if number >> 64:
        raise ValueError
    return (number >> 1) ^ -(number & 1), at


def read_size(data: bytes, at: int) -> tuple[int, int]:
    """Return a length and its end.

    Raises:
        IndexError: The data have fewer bytes.
        ValueError: The length is negative.
    """
    size, at = read_long(data, at)
    if size < 0:
        raise ValueError
    if at + size > len(data):
        raise IndexError
    return size, at


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes at *at* and their end."""
    size = data[at]
    if size & 0x81:  # more than one byte long, or negative
        size, at = read_size(data, at)
    else:
        size >>= 1
        at += 1
    end = at + size
    return data[at:end], end


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Return the UTF-8 text at *at* and its end. A short text of cut data is found at the end."""
    size = data[at]
    if size & 0x81:
        size, at = read_size(data, at)
    else:
        size >>= 1
        at += 1
    end = at + size
    return data[at:end].decode(), end


def read_count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the next block of an array or map (0 ends it), and its start.

    Raises:
        IndexError: There are fewer bytes than items; each item has at least one.
    """
    count, at = read_long(data, at)
    if count < 0:
        count = -count
        _, at = read_long(data, at)  # the size of the block, for readers that skip it
    if count > len(data) - at:
        raise IndexError
    return count, at


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_SHORT: Final = tuple(map(_varint, range(4096)))


def long_of(number: int) -> bytes:
    """Return the zig-zag form of a number of at most 64 bits."""
    return _SHORT[number] if 0 <= number < 4096 else _varint(number)


def bytes_of(value: bytes) -> bytes:
    """Return bytes after their length."""
    return long_of(len(value)) + value


def text_of(value: str) -> bytes:
    """Return text after its length in bytes.

    Raises:
        UnicodeEncodeError: The text has a lone surrogate.
    """
    data = value.encode()
    return long_of(len(data)) + data
