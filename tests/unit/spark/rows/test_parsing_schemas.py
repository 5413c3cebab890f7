# SPDX-License-Identifier: Apache-2.0
"""Images of many schemas are parsed by few, and none by a schema whose columns mean others."""

from typing import Any

import pytest

from changelane.spark.rows.parsing_schemas import parsing_schemas
from changelane.spark.rows.schema import RowColumn, RowSchema
from changelane.spark.rows.target import Target


def column(name: str, spark: str = "STRING", **more: Any) -> RowColumn:
    return RowColumn(name, spark.lower(), spark, **more)


def parsed(*schemas: tuple[RowColumn, ...], is_exact: bool = True) -> list[tuple[list[str], str]]:
    """Return the schemas that each parsing schema covers, and its columns."""
    by_id = {f"s{index}": RowSchema(columns) for index, columns in enumerate(schemas)}
    target = Target({}, (), by_id, has_exact_images=is_exact)
    return [
        (one.schema_ids, " ".join(f"{each.name}:{each.spark}" for each in one.schema.columns))
        for one in parsing_schemas(target)
    ]


ID, NOTE = column("id", "INT"), column("note")


def test_schemas_that_agree_share_one_with_the_columns_of_all() -> None:
    schemas = [(ID,), (ID, NOTE), (NOTE, column("more")), (ID, NOTE)]
    assert parsed(*schemas) == [(["s0", "s1", "s2", "s3"], "id:INT note:STRING more:STRING")]


def test_a_column_of_two_types_or_spellings_has_two() -> None:
    assert parsed((ID, NOTE), (ID, column("note", "INT")), (column("ID", "INT"),), (ID,)) == [
        (["s0", "s3"], "id:INT note:STRING"),
        (["s1"], "id:INT note:INT"),
        (["s2"], "ID:INT"),
    ]


@pytest.mark.parametrize(
    "other",
    [
        (ID, column("note", source_name="_changelane_string_note")),
        (ID, column("new", source_name="note")),
        (ID, column("more", fixed=('{"v":5}', "INT"))),
        (ID, column("a"), column("A")),
    ],
    ids=str,
)
def test_a_schema_whose_images_have_other_names_is_alone(other: tuple[RowColumn, ...]) -> None:
    assert [ids for ids, _ in parsed((ID,), other, (ID, column("more")))] == [["s1"], ["s0", "s2"]]


def test_each_schema_is_alone_after_a_statement() -> None:
    """An image that is older than a drop still has the column, which may have come again."""
    assert len(parsed((ID,), (ID, NOTE), is_exact=False)) == 2
