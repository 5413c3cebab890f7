# SPDX-License-Identifier: Apache-2.0
"""The interface of the readers of data files, and the kind of a file by its name."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Final, Literal, Protocol

from changelane.conversion.compression import compression
from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode
from changelane.schema import Column

Kind = Literal["parquet", "avro", "csv"]
"""The kind of a data file."""
Row = tuple[Any, ...]
"""The values of a row, in the order of the columns.

A value is its JSON form (:mod:`changelane.types.values`), or an object that msgspec encodes as this
form: bytes, decimals, dates.
"""

MAX_BLOCK_BYTES: Final = 256 << 20
"""The maximum size of the part of a file that is loaded at once: a block, or a line."""
_KINDS: Final[dict[str, Kind]] = {".parquet": "parquet", ".avro": "avro", ".csv": "csv"}


class RowFile(Protocol):
    """An opened data file.

    Attributes:
        columns: The columns of the file, with their types.
    """

    columns: tuple[Column, ...]

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in their order, in batches of limited size; each call begins anew.

        Raises:
            DecodeError: The file is damaged, or it expands too much.
        """
        ...


def kind_of(path: str) -> Kind | None:
    """Return the kind of a data file by its name; ``None`` for a file of lines.

    >>> kind_of("a/LOAD1.csv.gz"), kind_of("a.snappy.parquet"), kind_of("a.jsonl")
    ('csv', 'parquet', None)
    """
    name = PurePosixPath(path).name
    if compression(name):
        name = name.rpartition(".")[0]
    return _KINDS.get(PurePosixPath(name).suffix.lower())


def malformed(reason: str) -> DecodeError:
    """Return the error of a file that is damaged, or of another kind than its name."""
    return DecodeError(reason, code=ReasonCode.MALFORMED_FILE)


def expansion_error() -> DecodeError:
    """Return the error of a file that expands too much."""
    return DecodeError(
        "the file expands to more than 1000 times its size, or a part of it is too large",
        code=ReasonCode.EXPANSION,
    )
