# SPDX-License-Identifier: Apache-2.0
"""Type texts of PostgreSQL and Oracle; MySQL's are in test_canal_types.py."""

import pytest

from changelane.sql_types import logical_type, oracle, postgresql
from changelane.types import parse_type


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("smallserial", "int16"),
        ("INTEGER", "int32"),
        ("bigserial", "int64"),
        ("oid", "uint32"),
        ("numeric", "decimal"),
        ("numeric(10)", "decimal(10,0)"),
        ("numeric(5,-2)", "decimal(5,-2)"),
        ("real", "float32"),
        ("float(24)", "float32"),
        ("float(25)", "float64"),
        ("float", "float64"),
        ("double   precision", "float64"),
        ("character varying(20)", "string"),
        ("char", "string"),
        ("national character varying(3)", "string"),
        ("bytea", "bytes"),
        ("bit(4)", "bits(4)"),
        ("bit", "bits(1)"),
        ("bit varying(5)", "bits"),
        ("date", "date"),
        ("time", "time"),
        ("time(3) with time zone", "timetz(3)"),
        ("timetz", "timetz"),
        ("timestamp without time zone", "timestamp"),
        ("timestamp (3) with time zone", "instant(3)"),
        ("timestamptz(0)", "instant(0)"),
        ("interval day to second(3)", "interval"),
        ("jsonb", "json"),
        ("uuid", "uuid"),
        ("pg_catalog.int4", "int32"),
        ("int[]", "array<int32>"),
        ("text[3][3]", "array<string>"),
        ("numeric(10,2) array[4]", "array<decimal(10,2)>"),
        ("ltree", "text('ltree')"),
        ('public."Mood"', "text('public.Mood')"),
        ('"Mood"', "text('Mood')"),
        ("int unsigned", "text('int')"),
        ("", "unknown"),
        ("(", "unknown"),
        ("x" * 1001, "unknown"),
    ],
)
def test_postgresql_types(text, kind):
    assert postgresql.parse(text) == parse_type(kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NUMBER", "decimal"),
        ("NUMBER(10)", "decimal(10,0)"),
        ("number(*,0)", "decimal(38,0)"),
        ("DECIMAL", "decimal(38,0)"),
        ("INTEGER", "decimal(38,0)"),
        ("FLOAT(126)", "decimal"),
        ("BINARY_DOUBLE", "float64"),
        ("VARCHAR2(20 CHAR)", "string"),
        ("NATIONAL CHARACTER VARYING (3)", "string"),
        ("LONG", "string"),
        ("LONG RAW", "bytes"),
        ("RAW(16)", "bytes"),
        ("DATE", "timestamp(0)"),
        ("TIMESTAMP", "timestamp(6)"),
        ("TIMESTAMP (9)", "timestamp(9)"),
        ("TIMESTAMP(6) WITH TIME ZONE", "instant(6)"),
        ("TIMESTAMP WITH LOCAL TIME ZONE", "instant(6)"),
        ("INTERVAL DAY(2) TO SECOND(6)", "interval"),
        ("MDSYS.SDO_GEOMETRY", "geometry(geometry)"),
        ("SYS.ANYDATA", "text('SYS.ANYDATA')"),
        ("", "unknown"),
        ("x" * 1001, "unknown"),
    ],
)
def test_oracle_types(text, kind):
    assert oracle.parse(text) == parse_type(kind)


def test_a_dialect_chooses_the_table():
    assert logical_type("bigint unsigned", "mysql") == parse_type("uint64")
    assert logical_type("date", "postgresql") == parse_type("date")
    assert logical_type("date", "oracle") == parse_type("timestamp(0)")
