# SPDX-License-Identifier: Apache-2.0
"""Event rows of transformed events, as the workers build them."""

import json
import pickle
from typing import get_args, get_type_hints

import pytest

from changelane import get_codec
from changelane.errors import ConfigError, UnknownNameError
from changelane.message import Message
from changelane.pipeline.config import Pipeline, load, parse
from changelane.transforms.cast import Cast
from changelane.transforms.include_exclude import Exclude
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.route import Route

builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)
rows = pytest.importorskip("changelane.spark.rows.schema", exc_type=ImportError)

SECRET = "a secret of the tests"
HASH = Mask(columns=("ssn",), method="hash", secret=SECRET)


def message(op="c", table="orders", row=None, **fields):
    row = {"id": 1, "ssn": "123-45-6789"} if row is None else row
    told = {
        "op": op,
        "table": {"database": "shop", "name": table},
        "key": ["id"],
        "before" if op == "d" else "after": row,
        "schema": [{"name": name, "type": "int64" if name == "id" else "string"} for name in row],
        "position": {"domain": "sequence", "value": 7},
        "source": {"server": "shop"},
    }
    told = {name: value for name, value in (told | fields).items() if value is not None}
    return Message(json.dumps(told).encode(), b"123-45-6789", (), "orders", 0, 7)


def built(steps, *messages, **options):
    options.setdefault("images", False)
    one = builder.row_builder("native-json", {}, transforms=steps, **options)
    found = [row for told in messages for row in one.rows(told)]
    return [dict(zip(rows.FIELD_INDEX, row, strict=True)) for row in found]


def test_rows_are_those_of_the_transformed_event():
    steps = (Route(pattern=r"shop\.orders", table="sales"), HASH, Rename(columns={"id": "nr"}))
    schema, row = built(pickle.loads(pickle.dumps(steps)), message())
    assert row["table_id"] == schema["table_id"] == '["shop",null,"sales"]'
    assert row["key"] == "[1]"
    image = json.loads(row["after"])
    assert image["nr"] == 1
    assert len(image["ssn"]) == 64
    assert [one["name"] for one in json.loads(schema["after"])["columns"]] == ["nr", "ssn"]


@pytest.mark.parametrize(
    ("kind", "value", "spark", "written"),
    [
        ("decimal(10,2)", "1.5", "DECIMAL(10,2)", "1.50"),
        ("date", "2020-01-01", "DATE", "2020-01-01"),
        ("timestamp(6)", "2020-01-01 10:00:00", "TIMESTAMP_NTZ", "2020-01-01T10:00:00"),
        ("instant(6)", "2020-01-01T10:00:00Z", "TIMESTAMP", "2020-01-01T10:00:00Z"),
        ("float64", "NaN", "DOUBLE", "NaN"),
        ("int64", None, "BIGINT", None),
        ("string", 7, "STRING", "7"),
    ],
)
def test_a_cast_gives_columns_their_types_without_a_schema(kind, value, spark, written):
    cast = Cast(columns={"total": kind})
    rename = Rename(columns={"total": "n"})
    for op in ("c", "d"):
        told = message(op, row={"id": 1, "total": value}, schema=None)
        schema, row = built((cast, rename), told)
        columns = {one["name"]: one["spark"] for one in json.loads(schema["after"])["columns"]}
        assert columns == {"id": "STRING", "n": spark}
        assert json.loads(row["before" if op == "d" else "after"]) == {"id": "1", "n": written}
    told = message(row={"id": 1, "total": "7"}, schema=None)
    mask = Mask(columns=("total",), method="truncate", keep=1)
    schema, row = built((Cast(columns={"total": "int64"}), mask), told)
    assert json.loads(schema["after"])["columns"][1]["spark"] == "STRING"


def test_an_excluded_event_is_a_row_that_tells_of_no_row():
    (row,) = built((Exclude(operations=("delete",)),), message("d"))
    assert (row["kind"], row["op"], row["offset"]) == ("other", "excluded", 7)


@pytest.mark.parametrize(
    "told",
    [
        message(row={"id": 1, "social": "123-45-6789"}),
        message(key=["ssn"]),
        Message(message().value[:-2], b"123-45-6789", (), "orders", 0, 7),
        message("d", row={"ssn": "123-45-6789"}),
        message(
            schema=[{"name": "id", "type": "int8"}, {"name": "ssn", "type": "string"}],
            row={"id": 999, "ssn": "123-45-6789"},
        ),
    ],
)
def test_what_is_set_aside_of_a_masked_stream_holds_no_value(told):
    (row,) = built((HASH,), told)
    assert row["kind"] == "error"
    assert (row["topic"], row["partition"], row["offset"]) == ("orders", 0, 7)
    assert row["raw_value"].startswith(b"hmac-sha256:")
    assert row["raw_key"].startswith(b"hmac-sha256:")
    assert "123-45" not in repr(row)
    assert SECRET not in repr(row)


def test_without_a_mask_the_raw_bytes_are_kept():
    told = message(row={"nr": 1})
    (row,) = built((Project(drop=("id",)),), message())
    assert (row["code"], row["raw_value"]) == ("key_column", message().value)
    assert built((), told, keys={"orders": ("no such",)})[0]["raw_value"] == told.value


@pytest.mark.parametrize("options", [{"keys": {"orders": ("ssn",)}}, {"tables_without_key": "row"}])
def test_a_configured_key_of_masked_columns_is_refused(options):
    told = message(key=None)
    (row,) = built((HASH,), told, **options)
    assert row["code"] == "key_column"


@pytest.mark.parametrize("options", [{"keys": {"orders": ("ssn",)}}, {"tables_without_key": "row"}])
def test_a_configured_key_of_masked_columns_is_refused_without_a_schema(options):
    told = message(key=None, schema=None)
    (row,) = built((HASH,), told, **options)
    assert row["code"] == "key_column"
    assert built((HASH,), told, keys={"orders": ("id",)})[1]["key"]
    dropped = (Project(drop=("ssn",)),)
    (row,) = built(dropped, told, tables_without_key="row")
    assert row["code"] == "key_column"


@pytest.mark.parametrize(
    ("schema", "key"), [(None, '"1"'), ([{"name": "id", "type": "int64"}], "1")]
)
def test_a_configured_key_of_merged_tables_has_the_shard(schema, key):
    route = Route(pattern=r"shop\..*", table="all", shards="key", shard_column="s")
    told = message(key=None, row={"id": 1}, schema=schema)
    (row,) = built((route,), told, keys={"all": ("id",)})
    assert row["code"] == "key_column"
    assert "lacks the column 's'" in row["reason"]
    assert built((route,), told, keys={"all": ("s", "id")})[1]["key"] == f'["shop.orders",{key}]'
    apart = Route(pattern=r"shop\..*", table="all", shards="apart")
    assert built((apart,), told, keys={"all": ("id",)})[1]["key"] == f"[{key}]"


def test_a_whole_row_that_lost_a_column_is_no_key():
    (row,) = built((Project(drop=("ssn",)),), message(key=None), tables_without_key="row")
    assert row["code"] == "key_column"
    assert built((Rename(columns={"ssn": "x"}),), message(key=None), tables_without_key="row")[1][
        "key"
    ]


def test_tables_that_meet_without_a_word_are_two_feeds_of_one_table():
    def feeds(*steps):
        found = built(steps, message(), message(table="sales"))
        return [json.loads(row["after"]).get("server") for row in found if row["kind"] == "schema"]

    one, other = feeds(Route(pattern=r"shop\.sales", table="orders"))
    assert one == "shop"
    assert json.loads(other) == ["shop", "shop.sales"]
    merged = feeds(Route(pattern=r"shop\..*", table="orders", shards="apart"))
    assert set(merged) == {"shop"}


def test_a_truncate_in_a_statement_is_of_the_feed_of_its_table():
    statement = {
        "op": "schema",
        "type": "alter",
        "table": {"database": "shop", "name": "sales"},
        "text": "TRUNCATE TABLE sales; ALTER TABLE sales ADD a INT",
        "position": {"domain": "sequence", "value": 7},
        "source": {"product": "mysql", "server": "shop"},
    }
    told = Message(json.dumps(statement).encode(), None, (), "orders", 0, 7)
    route = Route(pattern=r"shop\.sales", table="orders")
    truncate, ddl = built((route,), told)
    assert (truncate["kind"], ddl["kind"]) == ("truncate", "ddl")
    assert truncate["table_id"] == ddl["table_id"] == '["shop",null,"orders"]'
    assert json.loads(truncate["schema_id"]) == ["shop", "shop.sales"]
    assert truncate["schema_id"] == ddl["schema_id"]


def test_the_feed_of_a_routed_table_stays_whatever_the_number_of_tables(monkeypatch):
    monkeypatch.setattr("changelane.transforms.chain._MAX_CACHED", 3)
    begin = Message(b'{"op": "transaction", "type": "begin", "transaction": {"id": "1"}}')
    told = [begin, *(message(table=name) for name in "abca")]
    found = built((Route(pattern=r"shop\.(.*)", table="ods_{table}"),), *told)
    schemas = [row for row in found if row["kind"] == "schema"]
    assert {(row["table_id"], json.loads(row["after"])["server"]) for row in schemas} == {
        (f'["shop",null,"ods_{name}"]', f'["shop","shop.{name}"]') for name in "abc"
    }


def test_transforms_stand_in_the_pipeline(tmp_path):
    text = """
name: shop
source: {type: files, path: changes, format: native-json}
transforms:
  - {type: mask, columns: [ssn], method: hash, secret: '${MASK_SECRET}'}
sink: {type: delta, path: lake}
"""
    path = tmp_path / "p.yaml"
    path.write_text(text)
    assert load(path, {"MASK_SECRET": SECRET}).transforms == (HASH,)
    assert SECRET not in repr(load(path, {"MASK_SECRET": SECRET}))
    with pytest.raises(ConfigError, match="MASK_SECRET is not set"):
        load(path, {})
    path.write_text(text.replace("columns", "column"))
    with pytest.raises(UnknownNameError, match="did you mean 'columns'"):
        load(path, {"MASK_SECRET": SECRET})
    path.write_text(text.replace("'${MASK_SECRET}'", "hunter2hunter2hunter2"))
    with pytest.raises(ConfigError, match="from the environment") as caught:
        load(path, {})
    assert "hunter2" not in str(caught.value)
    parts = {"source": {"type": "files", "path": "a", "format": "native-json"}}
    with pytest.raises(ConfigError, match="transform 1: "):
        parse(
            {
                "name": "x",
                **parts,
                "sink": {"type": "delta", "path": "b"},
                "transforms": [{"type": "mask"}],
            }
        )


def test_the_format_is_read_as_before_without_transforms():
    assert built((), message()) == built((Rename(columns={"no": "such"}),), message())
    assert get_codec("native-json").decode(message())


def test_every_source_and_sink_was_thought_of():
    """Transforms that a job leaves out would let masked values through: add a kind here only
    when what reads it, or writes it, is given the pipeline's transforms."""
    hints = get_type_hints(Pipeline)

    def kinds(told):
        return {str(one.__struct_config__.tag) for one in get_args(told) or (told,)}

    captured = {"segments", "postgres", "mysql", "mariadb", "sqlserver", "oracle"}
    assert kinds(hints["source"]) == {"files", "kafka", "datahub", *captured}
    assert kinds(hints["sink"]) <= {"delta", "iceberg", "hudi", "kafka", "datahub"}
