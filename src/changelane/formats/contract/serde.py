# SPDX-License-Identifier: Apache-2.0
"""The interface of serdes: bytes to wire classes and back."""

from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Serde(Protocol):
    """Bytes <-> a wire class. Implementations are frozen, picklable and thread-safe."""

    name: str

    def loads(self, data: bytes | memoryview, type: type[T]) -> T:
        """Decode *data* as *type*.

        Raises:
            DecodeError: The bytes are not of this serde, or not of that type.
        """
        ...

    def dumps(self, value: Any) -> bytes:
        """Encode a value of a wire class.

        Raises:
            EncodeError: The value has no form in this serde.
        """
        ...
