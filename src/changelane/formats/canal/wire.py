# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Canal's ``FlatMessage``, with the producer's own names and order."""

from typing import Any

import msgspec

TextRow = dict[str, str | None]
"""A row of Canal: every value is text or null."""

JsonRow = dict[str, Any]
"""A row of InLong or Flink: values may be JSON numbers and booleans."""


class FlatMessage(msgspec.Struct):
    """A message to read; keys that a producer omits are null or empty here.

    The three maps that describe the table stay raw: they repeat in each message and are parsed once
    per content.
    """

    type: str
    data: list[TextRow] | None = None
    database: str | None = None
    es: int | None = None
    gtid: str | None = None
    id: int | None = None
    isDdl: bool | None = None  # noqa: N815 - the producer's name
    mysqlType: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the producer's name
    old: list[TextRow | None] | None = None
    pkNames: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the producer's name
    sql: str | None = None
    sqlType: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the producer's name
    table: str | None = None
    ts: int | None = None
    batchId: int | None = None  # noqa: N815 - InLong's own
    updateBefore: list[TextRow | None] | None = None  # noqa: N815 - InLong's name of `old`
    tidb: dict[str, Any] | None = msgspec.field(default=None, name="_tidb")


class JsonFlatMessage(FlatMessage):
    """A message to read with JSON values in its rows; they are converted into text first."""

    data: list[JsonRow] | None = None
    old: list[JsonRow | None] | None = None
    updateBefore: list[JsonRow | None] | None = None  # noqa: N815 - InLong's name of `old`


class WrittenMessage(msgspec.Struct):
    """A message to write: keys in alphabetical order, like fastjson's; ``UNSET`` is omitted."""

    data: list[JsonRow] | msgspec.UnsetType | None
    database: str
    es: int | None
    gtid: str | msgspec.UnsetType
    id: int
    isDdl: bool  # noqa: N815 - the producer's name
    mysqlType: msgspec.Raw | msgspec.UnsetType | None  # noqa: N815 - the producer's name
    old: list[JsonRow] | msgspec.UnsetType | None
    pkNames: msgspec.Raw | msgspec.UnsetType | None  # noqa: N815 - the producer's name
    sql: str
    sqlType: msgspec.Raw | msgspec.UnsetType | None  # noqa: N815 - the producer's name
    table: str
    ts: int | None
    type: str
