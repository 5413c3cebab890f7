# SPDX-License-Identifier: Apache-2.0
"""The types of columns as texts, which tables and events spell in different ways."""

from typing import NamedTuple

from changelane.spark.lake.interface import widens


class _NestedType(NamedTuple):
    """An array, map or struct: the names and types of its parts; parts of others have no names."""

    kind: str
    names: list[str]
    types: list[str]


def fits(kind: str, column_type: str) -> bool:
    """Return whether a column stores every value of a type exactly.

    Arrays and structs fit by their parts: Iceberg and Hudi store an array of smallint as one of
    int. Structs have the same fields in the same order and case, by which JSON is read.

    >>> fits("ARRAY<STRUCT<`n`: SMALLINT>>", "array<struct<n:int>>")
    True

    Args:
        kind: The type, as DDL; the names of fields may be quoted.
        column_type: The type of the column.
    """
    nested, nested_column = _nested_type(kind), _nested_type(column_type)
    if nested is None or nested_column is None:
        return widens(kind, column_type)
    if (nested.kind, nested.names) != (nested_column.kind, nested_column.names):
        return False
    return all(map(fits, nested.types, nested_column.types))


def _nested_type(text: str) -> _NestedType | None:
    kind, _, rest = text.partition("<")
    if not rest:
        return None
    parts = _parts(rest.rstrip()[:-1])
    kind = kind.strip().lower()
    if kind != "struct":
        return _NestedType(kind, [""] * len(parts), parts)
    fields = [part.partition(":") for part in parts]
    names = [name.strip().strip("`") for name, _, _ in fields]
    return _NestedType(kind, names, [field_type for _, _, field_type in fields])


def _parts(text: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, begin, depth = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]
