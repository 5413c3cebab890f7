# SPDX-License-Identifier: Apache-2.0
"""The hash functions of producers for partitions, bit by bit.

Kafka's hash is in ``org.apache.kafka.common.utils.Utils`` and ``BuiltInPartitioner``, Canal's hash
in ``MQMessageUtils``, with Java's ``int``. MurmurHash3 (x86, 32 bits) is Austin Appleby's.
"""

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from changelane.message import Message
from changelane.profiles.profile import PartitionsOf

_MASK: Final = 0xFFFFFFFF
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_M: Final = 0x5BD1E995
INT_MIN: Final = -(1 << 31)


def _signed(number: int) -> int:
    """Return the low 32 bits as Java's ``int``."""
    return ((number & _MASK) ^ 0x80000000) - 0x80000000


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key.

    >>> murmur2(b"foobar"), murmur2(b"21")
    (-790332482, -973932308)
    """
    mask, factor = _MASK, _MURMUR_M
    words = len(data) // 4
    hashed = (_MURMUR_SEED ^ len(data)) & mask
    for word in struct.unpack_from(f"<{words}I", data):
        mixed = word * factor & mask
        mixed ^= mixed >> 24
        hashed = (hashed * factor & mask) ^ (mixed * factor & mask)
    tail = data[4 * words :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * factor & mask
    hashed ^= hashed >> 13
    hashed = hashed * factor & mask
    return _signed(hashed ^ hashed >> 15)


def murmur3(data: bytes, seed: int) -> int:
    """Return MurmurHash3 for x86 with 32 bits.

    >>> murmur3(b"", 1), murmur3(b"The quick brown fox jumps over the lazy dog", 0x9747B28C)
    (1364076727, 799549133)
    """
    mask = _MASK
    hashed = seed
    words = len(data) // 4
    for word in struct.unpack_from(f"<{words}I", data):
        hashed = _rotated(hashed ^ _murmur3_word(word), 13) * 5 + 0xE6546B64 & mask
    if tail := data[4 * words :]:
        hashed ^= _murmur3_word(int.from_bytes(tail, "little"))
    hashed ^= len(data)
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & mask
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & mask
    return _signed(hashed ^ hashed >> 16)


def _murmur3_word(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(word: int, count: int) -> int:
    return (word << count | word >> 32 - count) & _MASK


def kafka_partition(key: bytes, count: int) -> int:
    """Return the partition that Kafka's default partitioner chooses for a key.

    >>> kafka_partition(b'{"id":1004}', 12)
    9
    """
    return (murmur2(key) & 0x7FFFFFFF) % count


def with_key_partition(message: Message, partitions_of: PartitionsOf) -> Message:
    """Return a message with the partition of its key; a message without key gets none."""
    topic, key, partition = message.topic, message.key, None
    if topic is not None and key is not None:
        count = partitions_of(topic)
        if count is not None:
            partition = kafka_partition(key, count)
    if partition == message.partition:
        return message
    return msgspec.structs.replace(message, partition=partition)


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, with overflow.

    >>> java_hash("inventory"), java_hash("polygenelubricants") == INT_MIN
    (-2020599460, True)
    """
    hashed = 0
    data = text.encode("utf-16-le", "surrogatepass")
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        hashed = (31 * hashed + unit) & _MASK
    return _signed(hashed)


def java_abs(number: int) -> int:
    """Return Java's ``Math.abs(int)``; the minimum stays negative."""
    return number if number == INT_MIN else abs(number)


def java_rem(number: int, count: int) -> int:
    """Return Java's ``number % count``, which has the sign of *number*."""
    remainder = abs(number) % count
    return -remainder if number < 0 else remainder


def hash_partition(number: int, count: int) -> int:
    """Return ``Math.abs(Math.abs(number) % count)``: Canal's partition of a hash."""
    return java_abs(java_rem(java_abs(number), count))


def xor_hash(texts: Iterable[str], start: int = 0) -> int:
    """Return the XOR of the hashes of texts, which does not depend on their order."""
    hashed = start
    for text in texts:
        hashed ^= java_hash(text)
    return hashed
