# SPDX-License-Identifier: Apache-2.0
"""The page of column types knows every type, and what Debezium's connectors really write."""

import json
import re
from pathlib import Path

import pytest
from lake_types_page import DATABASES, parsed

from changelane.sql_types import mysql, oracle, postgresql

CAPTURED = Path(__file__).resolve().parents[2] / "golden" / "debezium-json" / "captured"
BY_TITLE = {database.title: database for database in DATABASES}
COLUMN = re.compile(r"\s*(\w+)\s+(.+?)\s*", re.DOTALL)
REST = re.compile(
    r"\s+(?:primary key|null|default|generated|character set|as \().*",
    re.IGNORECASE | re.DOTALL,
)


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("MySQL and MariaDB", [*mysql._SIMPLE, *mysql._INTEGERS]),
        ("PostgreSQL", postgresql._SIMPLE),
        ("Oracle", oracle._SIMPLE),
    ],
)
def test_the_page_has_every_type_that_a_type_text_can_have(title, names):
    database = BY_TITLE[title]
    shown = {type(parsed(text, database)) for types in database.types for text in types.texts}
    lacking = {name for name in names if type(parsed(name, database)) not in shown}
    assert not lacking


def columns_of(file, table):
    """The columns of a CREATE TABLE, name -> type text without what follows it."""
    text = (CAPTURED / file).read_text("utf-8")
    body = re.search(rf"CREATE TABLE {table} \((.*?)\);", text, re.DOTALL)[1]
    parts = re.split(r",(?![^(]*\))", body)
    return {found[1]: REST.sub("", found[2]) for part in parts if (found := COLUMN.fullmatch(part))}


def schemas_of(file, table):
    for line in (CAPTURED / file).read_text("utf-8").splitlines():
        record = json.loads(line)
        if record["value"] and record["topic"].endswith(f".{table}"):
            (after,) = (
                block
                for block in json.loads(record["value"])["schema"]["fields"]
                if block["field"] == "after"
            )
            return {field["field"]: field for field in after["fields"]}
    raise AssertionError(table)


@pytest.mark.parametrize(
    ("titles", "product", "least"),
    [
        (("MariaDB's own types", "MySQL and MariaDB"), "mariadb", 30),
        (("PostgreSQL",), "postgres", 30),
    ],
)
def test_debezium_writes_the_types_that_the_page_quotes(titles, product, least):
    quoted = {}
    for title in reversed(titles):
        for types in BY_TITLE[title].types:
            quoted |= dict.fromkeys((text.partition(" (")[0] for text in types.texts), types.schema)
    spelled = {"boolean": "bool"} if product == "mariadb" else {"int": "integer"}
    schemas = schemas_of(f"debezium-{product}-schema.jsonl", "types_all")
    compared = 0
    for name, text in columns_of(f"{product}-schema.sql", "types_all").items():
        told, want = schemas.get(name), quoted.get(spelled.get(text, text))
        if told is None or want is None or text == "bigint unsigned":  # captured as `long`
            continue
        assert (told["type"], told.get("name")) == (want.type, want.name), (name, text)
        assert (told.get("parameters") or {}).keys() == want.parameter.keys(), (name, text)
        compared += 1
    assert compared >= least


def test_the_page_names_the_columns_that_debezium_leaves_out():
    schemas = schemas_of("debezium-mariadb-schema.jsonl", "types_all")
    columns = columns_of("mariadb-schema.sql", "types_all")
    left_out = {columns[name] for name in columns.keys() - schemas.keys()}
    types = (types for database in DATABASES for types in database.types)
    named = {text for one in types if one.schema is None for text in one.texts}
    assert left_out
    assert left_out <= named
