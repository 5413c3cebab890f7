# SPDX-License-Identifier: Apache-2.0
"""The options ``rows`` of files whose rows are rows of tables, not messages."""

from typing import Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.schema import TableId

NATIVE: Final = "native-json"
"""The format of the messages that rows become."""
_LAYOUT_OF: Final = {
    "table": "table",
    "partition_folders": "table",
    "timestamp_column": "dms",
    "cdc_path": "dms",
    "no_sup_value": "dms",
}
"""The layout of options that have no effect with another one."""
_DELIMITERS: Final = frozenset('"\r\n')


class RowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How rows of Parquet, Avro and CSV files become events (`docs/files.md`).

    Attributes:
        layout: ``table`` (a row is a row of a table), ``dms`` (files of AWS DMS in S3) or
            ``datastream`` (Avro files of Google Datastream in Cloud Storage).
        table: The table of all rows, such as ``shop.public.orders``, with ``layout: table``; by
            default, the folders that contain a file name its table.
        op: The operation of a row with ``layout: table``: ``r`` (snapshot read) or ``c`` (create).
        schemas: Table (or its last parts) -> column -> type, with `` key`` after it for a column of
            the key: the columns of a CSV file without header, in their order, and the types of
            columns that are text in the file.
        keys: Table (or its last parts) -> its key columns.
        owner: The part of a table's name in the outer folder: ``schema`` or ``database``.
        partition_folders: Whether folders such as ``day=2026-11-26`` are columns of text
            (``columns``) or without meaning (``ignore``); without the option, such a folder is an
            error, because the files do not have its column.
        timestamp_column: The column with the time of a change, with ``layout: dms``: the endpoint's
            ``TimestampColumnName``.
        without_op: The operation of a change without the column ``Op``, with ``layout: dms``:
            ``insert`` for ``CdcInsertsOnly``, ``upsert`` for ``CdcInsertsAndUpdates``, or
            ``reject``.
        op_in_load: Whether files of the full load begin with the column ``Op``, with
            ``layout: dms``: the endpoint's ``IncludeOpForFullLoad``. Parquet files, and CSV files
            with a header, do not need it.
        cdc_path: The folder of the CSV files with changes of all tables in the order of their
            transactions, with ``layout: dms``: the endpoint's ``CdcPath``, if
            ``PreserveTransactions`` is on.
        no_sup_value: The unquoted text of a column that the source did not log, with
            ``layout: dms``: the endpoint's ``CsvNoSupValue``.
        header: Whether the first line of a CSV file has the names of its columns; by default with
            ``layout: table``, and not with ``layout: dms``.
        delimiter: The character between the fields of a CSV file.
        quoting: ``rfc4180`` (fields may be quoted; a quote in them is doubled) or ``none``.
        null_value: The unquoted text of NULL in a CSV file; by default nothing with
            ``layout: table``, and ``NULL`` with ``layout: dms``.
        binary: The text of bytes in a CSV file: ``hex`` or ``base64``.
    """

    layout: Literal["table", "dms", "datastream"] = "table"
    table: str | None = None
    op: Literal["r", "c"] = "r"
    schemas: dict[str, dict[str, str]] = {}
    keys: dict[str, list[str]] = {}
    owner: Literal["schema", "database"] = "schema"
    partition_folders: Literal["columns", "ignore"] | None = None
    timestamp_column: str | None = None
    without_op: Literal["reject", "insert", "upsert"] = "reject"
    op_in_load: bool = False
    cdc_path: str | None = None
    no_sup_value: str | None = None
    header: bool | None = None
    delimiter: str = ","
    quoting: Literal["rfc4180", "none"] = "rfc4180"
    null_value: str | None = None
    binary: Literal["hex", "base64"] = "hex"

    def __post_init__(self) -> None:
        """Reject options that contradict each other."""
        if len(self.delimiter) != 1 or self.delimiter in _DELIMITERS:
            raise ValueError("rows.delimiter must be one character, and no quote or line end")
        for name, layout in _LAYOUT_OF.items():
            if self.layout != layout and getattr(self, name) is not None:
                raise ValueError(f"rows.{name} needs layout: {layout}")
        if self.table is not None:
            table_id(self.table)
        if self.cdc_path is not None and not self.cdc_path.strip("/"):
            raise ValueError("rows.cdc_path must be the path of a folder")
        if self.no_sup_value is not None and self.no_sup_value == self.null_text:
            raise ValueError("rows.no_sup_value and rows.null_value must differ")
        try:
            DeclaredTables(self.schemas, self.binary)
        except ConfigError as error:
            raise ValueError(f"rows.{error}") from None

    @property
    def has_header(self) -> bool:
        """Whether the first line of a CSV file has the names of its columns."""
        return self.layout == "table" if self.header is None else self.header

    @property
    def null_text(self) -> str:
        """The unquoted text of NULL in a CSV file."""
        return (
            ("NULL" if self.layout == "dms" else "") if self.null_value is None else self.null_value
        )


def table_id(name: str) -> TableId:
    """Return the table of a name with one to three parts.

    Raises:
        ValueError: The name has more parts, or an empty one.
    """
    parts = name.split(".")
    if len(parts) > 3 or not all(parts):
        raise ValueError("rows.table must have one to three parts: [[database.]schema.]table")
    return TableId(*([None] * (3 - len(parts)) + parts))
