# SPDX-License-Identifier: Apache-2.0
"""The layout of tables: their partitions, and the properties of the table format."""

from collections.abc import Iterable, Mapping

import msgspec

from changelane.pipeline.lake_sinks import Partition
from changelane.pipeline.options import Options
from changelane.schema import TableId, option_for_table
from changelane.spark.runtime.sql import quoted

LAYOUT = "layout"


class NoColumnError(Exception):
    """A table lacks a column of its partitions."""


class Layout(msgspec.Struct, frozen=True):
    """The layout of one table.

    Attributes:
        partition_by: Its partitions: :class:`changelane.pipeline.lake_sinks.Partition`.
        properties: Properties of the table format.
    """

    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}

    @property
    def columns(self) -> frozenset[str]:
        """The columns of its partitions, in lower case."""
        return frozenset(Partition.parse(text).column.lower() for text in self.partition_by)

    def renamed(self, names: Mapping[str, str | None]) -> "Layout":
        """Return the layout after renames of columns: the new names by the old ones."""
        new_names = {old.lower(): new for old, new in names.items()}
        partitions = map(Partition.parse, self.partition_by)
        texts = (
            msgspec.structs.replace(
                partition, column=new_names.get(partition.column.lower()) or partition.column
            ).text
            for partition in partitions
        )
        return Layout(tuple(texts), self.properties)

    @property
    def table_property(self) -> dict[str, str]:
        """The layout as a property of a table."""
        return {} if self == PLAIN else {LAYOUT: msgspec.json.encode(self).decode()}

    def partitions(self, columns: Iterable[str]) -> list[str]:
        """Return the partitions of a table with these columns, for SQL.

        Raises:
            NoColumnError: The table lacks a column of a partition.
        """
        names_by_lower = {name.lower(): name for name in columns}
        partitions = []
        for partition_text in self.partition_by:
            partition = Partition.parse(partition_text)
            if (column := names_by_lower.get(partition.column.lower())) is None:
                raise NoColumnError(
                    f"partition_by has {partition_text!r}, and no event has this column yet"
                )
            column_sql = quoted(column)
            arguments = column_sql if partition.size is None else f"{partition.size}, {column_sql}"
            partitions.append(
                column_sql if partition.function is None else f"{partition.function}({arguments})"
            )
        return partitions

    def for_existing_table(self, properties: Mapping[str, str]) -> "Layout":
        """Return the layout of an existing table, which keeps its partitions."""
        table_layout = layout_of(properties)
        return Layout(table_layout.partition_by, {**table_layout.properties, **self.properties})

    def note(self, properties: Mapping[str, str]) -> str | None:
        """Return a note if an existing table has other partitions; ``None`` = it has these."""
        table_layout = layout_of(properties)
        if table_layout.partition_by == self.partition_by:
            return None
        partition_list = ", ".join(table_layout.partition_by) or "none"
        return f"the table keeps the partitions of its creation: {partition_list}"


PLAIN = Layout()


def layout_of(properties: Mapping[str, str]) -> Layout:
    """Return the layout in a table's properties."""
    layout_text = properties.get(LAYOUT)
    return PLAIN if not layout_text else msgspec.json.decode(layout_text, type=Layout)


class Layouts(msgspec.Struct, frozen=True):
    """The layouts of tables.

    Attributes:
        default: The layout of all other tables.
        tables: The layout by the table's name at its source, or the last parts of it; the fuller
            name wins.
    """

    default: Layout = PLAIN
    tables: Mapping[str, Layout] = {}

    def of(self, table: TableId) -> Layout:
        """Return the layout of a table."""
        return option_for_table(self.tables, table) or self.default


def layouts_of(options: Options) -> Layouts:
    """Return the layouts in a pipeline's options."""
    tables = {
        name: Layout(
            tuple(table_options.partition_by), {**options.properties, **table_options.properties}
        )
        for name, table_options in options.tables.items()
    }
    return Layouts(Layout(properties=options.properties), tables)
