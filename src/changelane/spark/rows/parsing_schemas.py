# SPDX-License-Identifier: Apache-2.0
"""The schemas with which the images of a batch are parsed.

Events that list only the columns of a change have a schema for each set of columns, and rows of
documents for each set of fields: thousands in one batch. An expression with a parser for each takes
minutes to plan. Schemas that agree in their common columns are parsed by one schema with the
columns of all: an image lacks the columns that its own schema lacks, which are NULL either way.
"""

from collections.abc import Mapping
from typing import NamedTuple

from changelane.spark.rows.schema import RowColumn, RowSchema
from changelane.spark.rows.target import Target


class ParsingSchema(NamedTuple):
    """A schema that parses the images of some schemas.

    Attributes:
        schema_ids: The ids of the schemas.
        schema: The columns of all of them.
    """

    schema_ids: list[str]
    schema: RowSchema


def parsing_schemas(target: Target) -> list[ParsingSchema]:
    """Return the schemas that parse the images of a table's events."""
    groups: list[_Group] = []
    others: list[ParsingSchema] = []
    for schema_id, schema in target.schemas.items():
        columns = {column.name.lower(): column for column in schema.columns}
        if not (target.has_exact_images and _names_all(schema, columns)):
            others.append(ParsingSchema([schema_id], schema))
            continue
        group = next((group for group in groups if group.agrees(columns)), None)
        if group is None:
            groups.append(group := _Group())
        group.add(schema_id, columns)
    return [
        *others,
        *(ParsingSchema(one.schema_ids, RowSchema(tuple(one.columns.values()))) for one in groups),
    ]


def _names_all(schema: RowSchema, columns: Mapping[str, RowColumn]) -> bool:
    """Return whether the columns of a schema are those of its images, by the same names.

    The image of a computed column still has the value that it replaces.
    """
    are_plain = all(
        column.source_name is None and column.fixed is None for column in schema.columns
    )
    return are_plain and len(columns) == len(schema.columns)


class _Group:
    """Schemas that agree in their common columns.

    Attributes:
        schema_ids: The ids of the schemas.
        columns: The columns of all of them, by their names in lower case.
    """

    def __init__(self) -> None:
        self.schema_ids: list[str] = []
        self.columns: dict[str, RowColumn] = {}

    def agrees(self, columns: Mapping[str, RowColumn]) -> bool:
        """Return whether columns of the same name are read in the same way."""
        return all(
            (known := self.columns.get(name)) is None
            or (known.name, known.spark) == (column.name, column.spark)
            for name, column in columns.items()
        )

    def add(self, schema_id: str, columns: Mapping[str, RowColumn]) -> None:
        """Add a schema that agrees with the group."""
        self.schema_ids.append(schema_id)
        for name, column in columns.items():
            self.columns.setdefault(name, column)
