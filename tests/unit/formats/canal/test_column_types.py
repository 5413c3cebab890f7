# SPDX-License-Identifier: Apache-2.0
"""mysqlType texts: both spellings in, MySQL's names out."""

import pytest

from changelane.errors import EncodeError
from changelane.sql_types.mysql import TYPES, parse, text_of
from changelane.types import Enum, Set, String, Uuid, parse_type

READ = [
    ("tinyint(4)", "int8"),
    ("TINYINT(2) unsigned zerofill", "uint8"),
    ("tinyint(1)", "int8"),
    ("BOOLEAN", "int8"),
    ("smallint(5) unsigned", "uint16"),
    ("MEDIUMINT UNSIGNED", "uint32"),
    ("int", "int32"),
    ("INTEGER", "int32"),
    ("int(10) zerofill", "uint32"),
    ("bigint(20)", "int64"),
    ("  BIGINT ( 20 )  UNSIGNED ", "uint64"),
    ("SERIAL", "uint64"),
    ("decimal(10,2)", "decimal(10,2)"),
    ("DECIMAL(8, 0)", "decimal(8,0)"),
    ("decimal(8)", "decimal(8,0)"),
    ("decimal", "decimal"),
    ("numeric(65,30) unsigned", "decimal(65,30)"),
    ("float", "float32"),
    ("float(7,4)", "float32"),
    ("FLOAT(53)", "float64"),
    ("DOUBLE PRECISION(10,7) unsigned", "float64"),
    ("real", "float64"),
    ("bit(10)", "bits(10)"),
    ("bit", "bits"),
    ("date", "date"),
    ("time(3)", "time(3)"),
    ("datetime", "timestamp"),
    ("DATETIME(6)", "timestamp(6)"),
    ("timestamp(0)", "instant(0)"),
    ("year(4)", "year"),
    ("char(10)", "string"),
    ("NATIONAL VARCHAR(20)", "string"),
    ("varchar(255) character set utf8", "string"),
    ("longtext", "string"),
    ("binary(16)", "bytes"),
    ("char byte(3)", "bytes"),
    ("long varbinary", "bytes"),
    ("MEDIUMBLOB", "bytes"),
    ("json", "json"),
    ("POINT", "geometry(point)"),
    ("multipolygon", "geometry(geometry)"),
    ("enum('a','b')", "enum('a','b')"),
    ("ENUM('value1','v''2', 'x,y' , '()')", "enum('value1','v''2','x,y','()')"),
    ("enum('')", "enum('')"),
    ("set('a','b') collate utf8_bin", "set('a','b')"),
    ("enum", "enum"),
    ("set('cut off", "set"),
    ("vector(3)", "string"),
    ("something_new(1)", "string"),
    ("", "string"),
    ("(((", "string"),
]


@pytest.mark.parametrize(("text", "kind"), READ)
def test_type_text_is_read(text, kind):
    assert str(parse(text).kind) == kind


WRITTEN = [
    ("int8", "tinyint"),
    ("uint64", "bigint unsigned"),
    ("decimal(38,10)", "decimal(38,10)"),
    ("decimal", "decimal"),
    ("decimal(*,2)", "decimal(65,2)"),
    ("float32", "float"),
    ("float64", "double"),
    ("string", "longtext"),
    ("bytes", "longblob"),
    ("bits(3)", "bit(3)"),
    ("date", "date"),
    ("time(3)", "time(3)"),
    ("timestamp", "datetime"),
    ("timestamp(0)", "datetime(0)"),
    ("timestamp(9)", "datetime(6)"),
    ("instant(3)", "timestamp(3)"),
    ("year", "year"),
    ("enum('a','it''s')", "enum('a','it''s')"),
    ("set('a','b')", "set('a','b')"),
    ("set", "set"),
    ("json", "json"),
    ("geometry(point)", "point"),
    ("geometry(geography)", "geometry"),
]


@pytest.mark.parametrize(("kind", "text"), WRITTEN)
def test_type_is_written_by_its_name_in_mysql(kind, text):
    assert text_of(parse_type(kind)) == text


CHANGED_ON_THE_WAY = {"decimal(*,2)", "timestamp(9)", "geometry(geography)"}


@pytest.mark.parametrize("kind", [kind for kind, _ in WRITTEN if kind not in CHANGED_ON_THE_WAY])
def test_written_type_reads_back(kind):
    logical_type = parse_type(kind)
    assert parse(text_of(logical_type)).kind == logical_type


@pytest.mark.parametrize("text", [text for text, _ in READ if parse(text).is_known])
def test_mysqls_own_type_text_is_kept(text):
    assert text_of(parse(text).kind, text) == text


@pytest.mark.parametrize(
    ("source", "kind", "written"),
    [
        ("uuid", "string", "longtext"),
        ("real", "float32", "float"),
        ("timestamp without time zone", "timestamp(6)", "datetime(6)"),
        ("serial", "int32", "int"),
        ("text", "string", "text"),
    ],
)
def test_other_databases_type_text_is_kept_only_where_mysql_means_the_same(source, kind, written):
    assert text_of(parse_type(kind), source) == written


def test_type_that_mysql_lacks_is_refused():
    with pytest.raises(EncodeError, match="Uuid"):
        text_of(Uuid())


def test_every_carried_type_has_a_name():
    assert {type(parse(text).kind) for text, _ in READ} == TYPES


def test_hostile_type_texts_cost_nothing():
    for text in ("enum('" + "a''" * 100_000, "int(" * 10_000, "a " * 100_000, "(" * 1_000_000):
        parse(text)


@pytest.mark.parametrize(("name", "kind", "most"), [("set", Set, 64), ("enum", Enum, 65_535)])
def test_more_members_than_mysql_allows_are_text(name, kind, most):
    def text(count):
        return f"{name}({','.join(map(repr, map(str, range(count))))})"

    assert len(parse(text(most)).kind.members) == most
    assert parse(text(most + 1)).kind == String()
    with pytest.raises(EncodeError, match=f"{most + 1} members"):
        text_of(kind(tuple(map(str, range(most + 1)))))
