# SPDX-License-Identifier: Apache-2.0
"""The values that event rows of one table, schema and key share, computed once per task."""

import msgspec

from changelane.event import Image
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.rows.json_values import RowWriter, key_as_text, spark_type
from changelane.spark.rows.schema import RowSchema, table_id_text
from changelane.spark.rows.schema_columns import row_columns
from changelane.types import UNKNOWN, String


class CompiledSchema:
    """One table with one schema and key, compiled once per task."""

    __slots__ = (
        "id",
        "is_written",
        "key",
        "schema",
        "schema_json",
        "table_id",
        "text_keys",
        "writer",
    )

    def __init__(
        self,
        table: TableId,
        schema: TableSchema,
        key: tuple[str, ...] | None,
        server: str | None,
        *,
        is_partial: bool,
        lists_columns: bool,
        is_merged: bool = False,
    ) -> None:
        columns = row_columns(schema)
        key_names = [f"\0{name}" for name in key or ()]
        if server is not None:
            key_names.append(f"\0\0{server}")
        if is_partial:
            key_names.append("\0\0\0")
        row_schema = RowSchema(columns, key, server, is_partial, lists_columns, is_merged)
        self.schema_json = msgspec.json.encode(row_schema).decode()
        self.id = TableSchema((*schema.columns, *(Column(name, UNKNOWN) for name in key_names))).id
        self.table_id = table_id_text(table)
        self.writer = RowWriter(schema)
        self.schema = schema
        self.key = key
        self.is_written = False
        self.text_keys = tuple(
            (column.name, column.type)
            for column in schema.columns
            if column.name in (key or ()) and spark_type(column.type) == "STRING"
            if not isinstance(column.type, String)
        )

    def with_key_texts(self, image: Image | None) -> Image | None:
        """Return an image with key values as the table stores them.

        The table stores some types as text, in which 1, 1.0 and "1" are one key.
        """
        if image is None:
            return None
        texts = {
            name: key_as_text(kind, image[name]) for name, kind in self.text_keys if name in image
        }
        return {**image, **texts}
