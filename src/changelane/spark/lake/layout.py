# SPDX-License-Identifier: Apache-2.0
"""How tables are laid out: their partitions, and the properties of the table format."""

from collections.abc import Iterable, Mapping

import msgspec

from changelane.pipeline.lake_sinks import Partition
from changelane.pipeline.options import Options
from changelane.schema import TableId, named
from changelane.spark.runtime.sql import quoted

LAYOUT = "layout"


class NoColumnError(Exception):
    """A table lacks a column by which it is to be partitioned."""


class Layout(msgspec.Struct, frozen=True):
    """How one table is laid out.

    Attributes:
        partition_by: Its partitions, as :class:`changelane.pipeline.config.Partition` reads them.
        properties: Properties of the table format.
    """

    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = {}

    @property
    def told(self) -> dict[str, str]:
        """What a table tells of its layout."""
        return {} if self == PLAIN else {LAYOUT: msgspec.json.encode(self).decode()}

    def partitions(self, columns: Iterable[str]) -> list[str]:
        """Return the partitions for SQL, of a table with these columns.

        Raises:
            NoColumnError: One of their columns is not there.
        """
        there = {name.lower(): name for name in columns}
        found = []
        for told in self.partition_by:
            one = Partition.parse(told)
            if (column := there.get(one.column.lower())) is None:
                raise NoColumnError(
                    f"the table is to be partitioned by {told!r}, which no event has yet"
                )
            named = quoted(column)
            arguments = named if one.size is None else f"{one.size}, {named}"
            found.append(named if one.function is None else f"{one.function}({arguments})")
        return found

    def of_made(self, properties: Mapping[str, str]) -> "Layout":
        """Return what is to become of a table that was made before: it keeps its partitions."""
        made = layout_of(properties)
        return Layout(made.partition_by, {**made.properties, **self.properties})

    def note(self, properties: Mapping[str, str]) -> str | None:
        """Return what is to be said when a table was made with other partitions."""
        made = layout_of(properties)
        if made.partition_by == self.partition_by:
            return None
        told = ", ".join(made.partition_by) or "none"
        return f"the table keeps the partitions that it was made with: {told}"


PLAIN = Layout()


def layout_of(properties: Mapping[str, str]) -> Layout:
    """Return the layout that a table tells of."""
    told = properties.get(LAYOUT)
    return PLAIN if not told else msgspec.json.decode(told, type=Layout)


class Layouts(msgspec.Struct, frozen=True):
    """The layouts of tables.

    Attributes:
        default: That of tables that are not named.
        tables: By the table's name at its source, in full or its last parts; the fuller name wins.
    """

    default: Layout = PLAIN
    tables: Mapping[str, Layout] = {}

    def of(self, table: TableId) -> Layout:
        """Return the layout of a table."""
        return named(self.tables, table) or self.default


def layouts_of(options: Options) -> Layouts:
    """Return the layouts that a pipeline's options ask for."""
    tables = {
        name: Layout(tuple(told.partition_by), {**options.properties, **told.properties})
        for name, told in options.tables.items()
    }
    return Layouts(Layout(properties=options.properties), tables)
