# SPDX-License-Identifier: Apache-2.0
"""What is compared, and what is named as not proven: types, transforms, keys and modes."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from changelane.pipeline.config import load
from changelane.schema import TableId
from changelane.spark.verify.mysql_types import MysqlType
from changelane.spark.verify.postgres_types import PostgresType
from changelane.spark.verify.table_plan import TablePlan
from changelane.spark.verify.table_planning import (
    UnverifiableError,
    table_plan,
    verified_target,
)

TABLE = TableId("shop", "public", "orders")
INT, TEXT = PostgresType("int4"), PostgresType("text")


def plan(
    folder: Path,
    source_types: dict[str, PostgresType],
    lake_types: dict[str, str],
    *,
    primary_key: tuple[str, ...] = ("id",),
    transforms: list[dict[str, Any]] = [],  # noqa: B006 - never changed
    debezium: dict[str, str] = {},  # noqa: B006 - never changed
    unpublished: Collection[str] = (),
    **options: Any,
) -> TablePlan:
    config = {
        "name": "shop",
        "source": {
            "type": "postgres",
            "host": "db",
            "database": "shop",
            "user": "u",
            "tables": ["public.*"],
            "segments": "capture",
            "debezium": debezium,
        },
        "transforms": transforms,
        "sink": {"type": "delta", "path": "lake"},
        "options": options,
    }
    file = folder / "shop.yaml"
    file.write_bytes(msgspec.json.encode(config))
    pipeline = load(file)
    return table_plan(
        pipeline,
        verified_target(pipeline, TABLE),
        primary_key=primary_key,
        source_types={"id": INT, **source_types},
        lake_types={"id": "int", **lake_types, "_changelane_order": "binary"},
        unpublished=unpublished,
    )


def test_columns_that_transforms_change_are_not_proven(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        dict.fromkeys("abcde", TEXT),
        {"x": "string", "b": "string", "c": "string", "e": "string", "own": "int"},
        transforms=[
            {"type": "rename", "columns": {"a": "x"}},
            {"type": "mask", "columns": ["b"], "method": "null"},
            {"type": "project", "drop": ["d"]},
            {"type": "compute", "columns": {"c": "upper(c)"}},
        ],
    )
    assert [(column.name, column.lake_name) for column in made.columns] == [
        ("id", "id"),
        ("a", "x"),
        ("e", "e"),
    ]
    assert made.unproven_columns == {
        "b": "a transform changes its values",
        "c": "a transform changes its values",
        "d": "a transform drops it",
        "own": "only the table of the lake has it",
    }


def test_repaired_rows_have_the_columns_that_only_other_pipelines_store(tmp_path: Path) -> None:
    """They would be NULL in the tables of these: a repaired row is a whole row."""
    drop: list[dict[str, Any]] = [{"type": "project", "drop": ["a", "d"]}]
    types = {"a": TEXT, "b": TEXT, "d": PostgresType("numeric", (10 << 16 | 3) + 4)}
    made = plan(tmp_path, types, {"b": "string"}, transforms=drop)
    assert [(column.name, column.lake_type) for column in made.other_columns] == [
        ("a", "string"),
        ("d", "decimal(10,3)"),
    ]
    assert made.has_all_columns
    assert [column.name for column in made.of_whole_rows.columns] == ["id", "b", "a", "d"]
    ignored = plan(tmp_path, types, {}, transforms=drop, schema_changes="ignore")
    assert [column.name for column in ignored.other_columns] == ["a", "b", "d"]
    # their values are in no form that the log has
    for changes in (
        {"source_types": {"a": PostgresType("interval")}},
        {"debezium": {"column.mask.with.3.chars": "public.orders.a"}},
        {"debezium": {"converters": "own"}},
    ):
        refused = plan(
            tmp_path,
            **{"source_types": types, "lake_types": {"b": "string"}, "transforms": drop, **changes},
        )
        assert not refused.has_all_columns
    excluded = plan(
        tmp_path,
        types,
        {"b": "string"},
        transforms=drop,
        debezium={"column.exclude.list": "public.orders.a"},
    )
    assert excluded.has_all_columns
    assert [column.name for column in excluded.other_columns] == ["d"]


@pytest.mark.parametrize(
    ("column_type", "log_type"),
    [
        (INT, "int"),
        (PostgresType("int2"), "smallint"),
        (PostgresType("oid"), "bigint"),
        (PostgresType("numeric"), "string"),
        (PostgresType("numeric", (38 << 16 | 38) + 4), "decimal(38,38)"),
        (PostgresType("numeric", (39 << 16 | 2) + 4), "string"),
        (PostgresType("numeric", (2 << 16 | 5) + 4), "string"),
        (PostgresType("bit", 1), "boolean"),
        (PostgresType("bit", 8), "string"),
        (PostgresType("mood", is_enum=True), "string"),
        (PostgresType("timestamptz"), "timestamp"),
        (PostgresType("_date", element=PostgresType("date")), "array<date>"),
        (PostgresType("interval"), None),
        (PostgresType("_interval", element=PostgresType("interval")), None),
        (MysqlType("tinyint"), "smallint"),
        (MysqlType("int", is_unsigned=True), "bigint"),
        (MysqlType("bigint", is_unsigned=True), "decimal(20,0)"),
        (MysqlType("decimal", precision=38, scale=4), "decimal(38,4)"),
        (MysqlType("decimal", precision=65, scale=30), "string"),
        (MysqlType("double"), "double"),
        (MysqlType("float"), None),
        (MysqlType("bit", precision=1), "boolean"),
        (MysqlType("bit", precision=3), "string"),
        (MysqlType("set"), "string"),
        (MysqlType("datetime"), "timestamp_ntz"),
        (MysqlType("geometry"), None),
    ],
)
def test_columns_have_the_types_of_the_log(
    column_type: PostgresType | MysqlType, log_type: str | None
) -> None:
    assert column_type.log_type == log_type
    assert log_type is None or column_type.text(log_type) is not None


def test_types_without_an_exact_comparison_are_not_proven(tmp_path: Path) -> None:
    made = plan(
        tmp_path,
        {
            "iv": PostgresType("interval"),
            "n": PostgresType("numeric", (10 << 16 | 3) + 4),
            "f": PostgresType("float8"),
            "h": PostgresType("_timetz", element=PostgresType("timetz")),
            "new": INT,
            "neg": PostgresType("numeric", (10 << 16 | 0x7FE) + 4),
        },
        {
            "iv": "string",
            "n": "decimal(10,2)",
            "f": "float",
            "h": "array<string>",
            "neg": "string",
        },
    )
    assert [column.name for column in made.columns] == ["id"]
    assert made.unproven_columns == {
        "iv": "no exact comparison of interval with string",
        "n": "no exact comparison of numeric with decimal(10,2)",
        "f": "no exact comparison of float8 with float",
        "h": "no exact comparison of timetz[] with array<string>",
        "new": "the table of the lake lacks it",
        "neg": "no exact comparison of numeric with string",
    }


@pytest.mark.parametrize(
    ("name", "patterns", "is_masked"),
    [
        ("column.mask.with.10.chars", "public.other.a, PUBLIC[.]orders[.]a", True),
        ("column.mask.hash.v2.SHA-256.with.salt.s3cret", r"shop\.public\.orders\.(a|b)", True),
        ("column.truncate.to.5.chars", "public.orders.aa,orders.a", False),
        ("column.propagate.source.type", "public.orders.a", False),
    ],
)
def test_columns_that_debezium_masks_are_neither_compared_nor_repaired(
    tmp_path: Path, name: str, patterns: str, is_masked: bool
) -> None:
    """A repair would write the values of the source."""
    made = plan(tmp_path, {"a": TEXT}, {"a": "string"}, debezium={name: patterns})
    reasons = {"a": "Debezium masks or truncates its values"} if is_masked else {}
    assert made.unproven_columns == reasons
    assert made.has_all_columns is not is_masked


@pytest.mark.parametrize(
    ("name", "patterns", "is_excluded"),
    [
        ("column.exclude.list", "public.other.a, PUBLIC[.]orders[.]a", True),
        ("column.exclude.list", "public.orders.b", False),
        ("column.exclude.list", r"\Qpublic.orders.b\E", True),  # a pattern of Java, of any column
        ("column.include.list", "public.orders.id,public.orders.b", True),
        ("column.include.list", "public[.]orders[.].*", False),
        ("column.include.list", r"\Qpublic.orders.a\E", True),
    ],
)
def test_columns_that_debezium_excludes_are_neither_compared_nor_repaired(
    tmp_path: Path, name: str, patterns: str, is_excluded: bool
) -> None:
    """The lake has their values from before, and a repair would write those of the source."""
    made = plan(tmp_path, {"a": TEXT}, {"a": "string"}, debezium={name: patterns})
    assert made.unproven_columns == ({"a": "the capture excludes it"} if is_excluded else {})
    assert made.has_all_columns is not is_excluded
    assert [column.name for column in made.key_columns] == ["id"]
    # a lake that never had them can be repaired
    made = plan(tmp_path, {"a": TEXT}, {}, debezium={name: patterns})
    assert made.has_all_columns is is_excluded


def test_rows_are_not_repaired_before_the_lake_has_a_new_column(tmp_path: Path) -> None:
    """The change that brings it later would give them NULL or the default, whatever they have."""
    made = plan(tmp_path, {"new": TEXT}, {})
    assert made.unproven_columns == {"new": "the table of the lake lacks it"}
    assert not made.has_all_columns
    assert plan(tmp_path, {"new": TEXT}, {"new": "string"}).has_all_columns
    assert plan(tmp_path, {"new": TEXT}, {}, schema_changes="ignore").has_all_columns
    assert plan(tmp_path, {"new": TEXT}, {}, unpublished={"new"}).has_all_columns


def test_columns_that_the_database_does_not_publish_are_neither_compared_nor_repaired(
    tmp_path: Path,
) -> None:
    made = plan(tmp_path, {"a": TEXT}, {"a": "string"}, unpublished={"a"})
    assert made.unproven_columns == {"a": "the capture excludes it"}
    assert not made.has_all_columns


def test_keys_that_may_contain_null_are_no_ranges(tmp_path: Path) -> None:
    """NULL is neither below nor above a value, and the least value of Spark."""
    nullable = msgspec.structs.replace(TEXT, is_nullable=True)
    keys = {"orders": ["id", "a"]}
    made = plan(tmp_path, {"a": nullable}, {"a": "string"}, primary_key=(), keys=keys)
    assert [r.column.name for r in made.ranges] == ["id"]
    assert MysqlType("varchar", is_nullable=True).range_texts("string") is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"primary_key": ()}, "no primary key"),
        ({"primary_key": ("f",)}, "cannot identify rows"),
        ({"debezium": {"message.key.columns": "public.orders:f"}}, "may change its key"),
        # a pattern of Java, which may match the key
        ({"debezium": {"column.mask.with.3.chars": r"\Qa.b.c\E"}}, "cannot identify rows"),
        ({"mode": "history"}, "mode is history"),
        ({"tables": {"orders": {"mode": "append"}}}, "mode is append"),
        ({"transforms": [{"type": "filter", "where": "id > 1"}]}, "filter excludes rows"),
        ({"transforms": [{"type": "exclude", "operations": ["delete"]}]}, "exclude events"),
    ],
)
def test_tables_whose_rows_are_not_those_of_the_source_are_not_verified(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnverifiableError, match=reason):
        plan(tmp_path, {"f": PostgresType("float8")}, {"f": "double"}, **changes)


def test_configured_keys_replace_the_primary_key(tmp_path: Path) -> None:
    made = plan(
        tmp_path, {"a": TEXT}, {"a": "string"}, primary_key=(), keys={"orders": ["a", "id"]}
    )
    assert [column.name for column in made.key_columns] == ["a", "id"]
    assert [r.texts.source for r in made.ranges] == ['{} COLLATE "C"', "{}"]
