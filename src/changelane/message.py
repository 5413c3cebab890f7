# SPDX-License-Identifier: Apache-2.0
"""A message of a broker or a file: uninterpreted bytes with their coordinates."""

import msgspec


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message with the fields of a Kafka record.

    Attributes:
        value: The body; ``None`` is a tombstone.
        headers: Pairs of name and bytes, in order; names may repeat.
        timestamp_ms: The broker's timestamp in milliseconds.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None

    @property
    def where(self) -> str:
        """The coordinates as text: ``topic-partition@offset``; empty if there are none."""
        if self.topic is None and self.offset is None:
            return ""
        partition = "" if self.partition is None else f"-{self.partition}"
        offset = "" if self.offset is None else f"@{self.offset}"
        return f"{self.topic or '?'}{partition}{offset}"
