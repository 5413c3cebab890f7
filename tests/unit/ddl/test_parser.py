# SPDX-License-Identifier: Apache-2.0
"""Statements to typed changes, and changes to schemas."""

import decimal
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import ddl
from changelane.ddl.tokenizer import MAX_TEXT_LENGTH
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNKNOWN, Boolean, Decimal, Enum, Integer, String, Timestamp

HERE = TableId("shop")
T = TableId("shop", None, "t")
INT = Integer(32)


def read(text, dialect="mysql", usual=HERE):
    (found,) = ddl.parse(text, dialect, usual)
    return found


def changes(text, dialect="mysql"):
    found = read(text, dialect)
    assert found.reason is None
    return list(found.changes)


def column(name, kind=INT, text="int", nullable=True, **more):
    return Column(name, kind, text, nullable, **more)


@pytest.mark.parametrize(
    ("dialect", "text", "action", "table"),
    [
        ("mysql", "CREATE TABLE t (a int)", "create", "shop.t"),
        ("mysql", "create temporary table if not exists `x`.`t``s` (a int)", "create", "x.t`s"),
        ("mysql", "ALTER ONLINE IGNORE TABLE t ADD a int", "alter", "shop.t"),
        ("mysql", "ALTER TABLE t RENAME u", "rename", "shop.t"),
        ("mysql", "ALTER TABLE t ADD INDEX i (a), ALGORITHM=INPLACE", "create_index", "shop.t"),
        ("mysql", "ALTER TABLE t ADD UNIQUE KEY (a)", "create_index", "shop.t"),
        ("mysql", "ALTER TABLE t DROP KEY a, DROP CONSTRAINT b", "drop_index", "shop.t"),
        ("mysql", "ALTER TABLE t DROP KEY a, DROP b", "alter", "shop.t"),
        ("mysql", "ALTER TABLE t ENGINE = InnoDB", "alter", "shop.t"),
        ("mysql", "RENAME TABLE a.b TO c", "rename", "a.b"),
        ("mysql", "TRUNCATE t", "truncate", "shop.t"),
        ("mysql", "/* x */ -- y\n# z\nTRUNCATE TABLE a.t", "truncate", "a.t"),
        ("mysql", "DROP TABLE IF EXISTS a, b", "drop", "shop.a"),
        ("mysql", "CREATE UNIQUE INDEX i USING BTREE ON t (a(10) DESC)", "create_index", "shop.t"),
        ("mysql", "DROP INDEX i ON t", "drop_index", "shop.t"),
        ("mysql", "CREATE DATABASE `d` CHARSET utf8mb4", "create_database", "d"),
        ("mysql", "DROP SCHEMA IF EXISTS d", "drop_database", "d"),
        ("mysql", "/*!40000 ALTER TABLE t DISABLE KEYS */", "alter", "shop.t"),
        ("mysql", "CREATE VIEW v AS SELECT 1", "other", "shop"),
        ("mysql", "eg: create xxx", "other", "shop"),
        ("mysql", "", "other", "shop"),
        ("postgresql", 'CREATE TABLE IF NOT EXISTS S."T" (a int)', "create", "shop.s.T"),
        ("postgresql", "ALTER TABLE IF EXISTS ONLY d.s.t ADD a int", "alter", "d.s.t"),
        ("postgresql", "ALTER TABLE t DROP CONSTRAINT c", "alter", "shop.t"),
        ("postgresql", "ALTER TABLE t SET SCHEMA x", "rename", "shop.t"),
        ("postgresql", "CREATE INDEX CONCURRENTLY i ON t (a)", "create_index", "shop.t"),
        ("postgresql", "ALTER INDEX a RENAME TO b", "other", "shop"),
        ("oracle", 'ALTER TABLE Hr."Emp" ADD (a NUMBER)', "alter", "shop.HR.Emp"),
        ("oracle", "RENAME a TO b", "rename", "shop.A"),
        ("oracle", "TRUNCATE TABLE t DROP STORAGE", "truncate", "shop.T"),
    ],
)  # fmt: skip
def test_action_and_table_of_statements(dialect, text, action, table):
    found = read(text, dialect) if text else ddl.parse(text, dialect, HERE)[0]
    assert (found.action, str(found.table)) == (action, table)


def test_one_alter_holds_several_actions_in_their_order():
    assert changes(
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS `a b` BIGINT(20) UNSIGNED NOT NULL DEFAULT '7'"
        " COMMENT 'it''s, (odd' AFTER `x`, DROP COLUMN c, CHANGE d e ENUM('x', \"y's\") FIRST,"
        " RENAME COLUMN f TO g, ALTER h SET DEFAULT 5, ALTER COLUMN h DROP DEFAULT,"
        " ADD PRIMARY KEY (a, b), DROP PRIMARY KEY, RENAME INDEX i TO j, COMMENT = 'no'"
    ) == [
        ddl.AddColumn(
            column("a b", Integer(64, unsigned=True), "BIGINT(20) UNSIGNED", False, default=7),
            "'7'",
            after="x",
            if_not_exists=True,
        ),
        ddl.DropColumn("c"),
        ddl.ModifyColumn(
            "d", "e", Enum(("x", "y's")), "ENUM('x', 'y''s')", True, None, False, first=True
        ),
        ddl.RenameColumn("f", "g"),
        ddl.ModifyColumn("h", default="5"),
        ddl.ModifyColumn("h", default=None),
        ddl.SetPrimaryKey(("a", "b")),
        ddl.DropPrimaryKey(),
        ddl.RenameIndex("i", "j"),
        ddl.Other("COMMENT = 'no'"),
    ]


def test_columns_may_be_in_parentheses():
    assert changes("ALTER TABLE t ADD (a int, b varchar(20) NULL, KEY k (a))") == [
        ddl.AddColumn(column("a")),
        ddl.AddColumn(column("b", String(), "varchar(20)")),
        ddl.AddIndex("k", ("a",)),
    ]


def test_a_modify_of_mysql_replaces_the_whole_definition():
    assert changes("ALTER TABLE t MODIFY a int") == [
        ddl.ModifyColumn("a", None, INT, "int", True, None, False)
    ]
    # whether such a column may be NULL depends on a variable of the server
    (found,) = changes("ALTER TABLE t MODIFY a timestamp(3)")
    assert found.nullable is None


def test_a_modify_of_oracle_has_only_the_changes():
    assert changes("ALTER TABLE t MODIFY (a NUMBER(9), b NOT NULL, c DEFAULT 0)", "oracle") == [
        ddl.ModifyColumn("A", None, Decimal(9, 0), "NUMBER(9)"),
        ddl.ModifyColumn("B", nullable=False),
        ddl.ModifyColumn("C", default="0"),
    ]


def test_oracle_needs_no_commas_between_actions():
    text = "ALTER TABLE t ADD a NUMBER DROP (b, c) RENAME COLUMN d TO e SET UNUSED (f) CASCADE"
    assert [type(change).__name__ for change in changes(text, "oracle")] == [
        "AddColumn", "DropColumn", "DropColumn", "RenameColumn", "DropColumn",
    ]  # fmt: skip


def test_columns_of_postgresql_change_piece_by_piece():
    assert changes(
        'ALTER TABLE t ALTER COLUMN "A" SET DATA TYPE numeric(10, 2) USING "A"::numeric,'
        " ALTER b SET NOT NULL, ALTER b DROP NOT NULL, ALTER c SET DEFAULT nextval('s'::regclass),"
        " ALTER c SET STATISTICS 7, RENAME d TO E",
        "postgresql",
    ) == [
        ddl.ModifyColumn("A", None, Decimal(10, 2), "numeric(10, 2)"),
        ddl.ModifyColumn("b", nullable=False),
        ddl.ModifyColumn("b", nullable=True),
        ddl.ModifyColumn("c", default="nextval('s'::regclass)"),
        ddl.Other("ALTER c SET STATISTICS 7"),
        ddl.RenameColumn("d", "e"),
    ]


def test_a_bare_rename_of_postgresql_is_of_a_column_and_of_mysql_of_the_table():
    assert changes("ALTER TABLE t RENAME a TO b", "postgresql") == [ddl.RenameColumn("a", "b")]
    assert changes("ALTER TABLE t RENAME AS b") == [ddl.RenameTable(T, TableId("shop", None, "b"))]


def test_a_column_of_postgresql_may_be_called_partition():
    text = "ALTER TABLE t RENAME partition TO part"
    assert changes(text, "postgresql") == [ddl.RenameColumn("partition", "part")]
    other = "ALTER TABLE t RENAME PARTITION p TO q"
    assert changes(other, "oracle") == [ddl.Other("RENAME PARTITION p TO q")]


def test_a_new_table_is_described():
    (table, index) = changes(
        "CREATE TABLE IF NOT EXISTS t (id int(11) NOT NULL AUTO_INCREMENT, s enum('a','it''s')"
        " DEFAULT 'a', d decimal(10,2) unsigned zerofill, at datetime(3) DEFAULT"
        " CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), g int GENERATED ALWAYS AS (id + 1)"
        " STORED, f FLOAT(7,4) UNSIGNED, PRIMARY KEY USING BTREE (id), KEY k (s),"
        " CONSTRAINT c FOREIGN KEY (g) REFERENCES o (id) ON DELETE SET NULL)"
        " ENGINE=InnoDB DEFAULT CHARSET=utf8 PARTITION BY HASH(id) PARTITIONS 4"
    )[:2]
    assert isinstance(table, ddl.CreateTable)
    assert (table.table, table.key, table.is_partial, table.if_not_exists) == (
        T, ("id",), False, True,
    )  # fmt: skip
    assert table.columns[:2] == (
        column("id", INT, "int(11)", False),
        column("s", Enum(("a", "it's")), "enum('a','it''s')", default="a"),
    )
    by_name = {one.name: one for one in table.columns}
    assert by_name["d"].source_type == "decimal(10,2) unsigned zerofill"
    assert (by_name["at"].type, by_name["at"].default) == (Timestamp(3), column("x").default)
    assert by_name["g"].generated
    assert table.defaults == (("s", "'a'"), ("at", "CURRENT_TIMESTAMP(3)"))
    assert index == ddl.AddIndex("k", ("s",))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("mysql", "CREATE TABLE t AS SELECT 1 a, b FROM c"),
        ("mysql", "CREATE TABLE t (a int) SELECT b FROM c"),
        ("mysql", "CREATE TABLE t (SELECT b FROM c)"),
        ("postgresql", "CREATE TABLE t (a) AS VALUES (1)"),
        ("postgresql", "CREATE TABLE p PARTITION OF q FOR VALUES IN (1)"),
        ("postgresql", "CREATE TABLE t (a int) INHERITS (u)"),
        ("postgresql", "CREATE TABLE t OF some_type"),
    ],
)
def test_a_table_without_all_columns_in_its_text_is_partial(dialect, text):
    (created,) = changes(text, dialect)
    assert created.is_partial
    assert ddl.shape_of(created) is None


@pytest.mark.parametrize("text", ["CREATE TABLE t LIKE x.u", "CREATE TABLE t (LIKE x.u)"])
def test_a_table_like_another_names_it(text):
    (created,) = changes(text)
    assert created.like == TableId("x", None, "u")
    assert ddl.shape_of(created) is None
    assert read(text).table == T


@pytest.mark.parametrize(
    ("dialect", "action"),
    [
        ("mysql", "DROP PARTITION p0, p1"),
        ("mysql", "TRUNCATE PARTITION ALL"),
        ("mysql", "EXCHANGE PARTITION p0 WITH TABLE u"),
        ("oracle", "DROP SUBPARTITION p0 UPDATE INDEXES"),
        ("postgresql", "ATTACH PARTITION p0 FOR VALUES FROM (1) TO (9)"),
        ("postgresql", "DETACH PARTITION p0 CONCURRENTLY"),
    ],
)
def test_a_statement_that_moves_rows_without_events_is_not_understood(dialect, action):
    (statement,) = ddl.parse(f"ALTER TABLE t {action}", dialect, HERE)
    assert (statement.action, statement.table, statement.changes) == (
        "alter",
        TableId("shop", None, "T") if dialect == "oracle" else T,
        (),
    )
    assert "rows of partitions" in statement.reason


def test_statements_of_one_text_are_read_apart():
    found = ddl.parse("TRUNCATE a; DROP TABLE b;; USE c; -- end", "mysql", HERE)
    assert [one.action for one in found] == ["truncate", "drop", "other"]
    assert [one.text for one in found] == ["TRUNCATE a", "DROP TABLE b", "USE c"]


def test_the_body_of_a_routine_is_no_statement_of_its_own():
    text = "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW BEGIN DROP TABLE a; DROP TABLE b; END"
    assert [one.action for one in ddl.parse(text, "mysql", HERE)] == ["other"]


@pytest.mark.parametrize(
    ("dialect", "text", "action"),
    [
        ("mysql", "ALTER TABLE t ADD a int, FROBNICATE", "alter"),
        ("mysql", "ALTER TABLE t ADD a int WIBBLE", "alter"),
        ("mysql", "ALTER TABLE t ADD", "alter"),
        ("mysql", "ALTER TABLE t ADD a int DROP b", "alter"),
        ("mysql", "ALTER TABLE t ADD a int NOT NULL DROP b", "alter"),
        ("mysql", "CREATE TABLE t (a int", "create"),
        ("mysql", "CREATE TABLE t (a int)) x", "create"),
        ("mysql", "DROP TABLE 'a", "drop"),
        ("mysql", "DROP TABLE a.b.c.d", "drop"),
        ("mysql", "TRUNCATE /* ", "truncate"),
        ("postgresql", "ALTER TABLE t ADD PRIMARY KEY USING INDEX i", "alter"),
        ("postgresql", "ALTER TABLE t ALTER a FLY", "alter"),
        ("oracle", "DROP TABLE t@elsewhere", "drop"),
        ("oracle", "create table t (" + "x" * MAX_TEXT_LENGTH, "create"),
    ],
)
def test_what_is_not_read_stays_text_with_a_reason(dialect, text, action):
    found = read(text, dialect)
    assert found.action == action
    assert found.changes == ()
    assert found.reason
    assert not {"wibble", "frobnicate", "xxx", "elsewhere"} & set(found.reason.lower().split())


def test_a_statement_is_read_whole_or_not_at_all():
    assert read("ALTER TABLE t DROP a, ADD b int WIBBLE").changes == ()
    assert read("ALTER TABLE t DROP a, ADD b int WIBBLE").table == T


def test_names_fold_as_each_database_folds_them():
    for dialect, bare in (("mysql", "aB"), ("postgresql", "ab"), ("oracle", "AB")):
        quote = "`" if dialect == "mysql" else '"'
        (one, two) = changes(
            f"ALTER TABLE t RENAME COLUMN aB TO {quote}aB{quote},"
            f" RENAME COLUMN {quote}TO{quote} TO {quote};--{quote}",
            dialect,
        )
        assert one == ddl.RenameColumn(bare, "aB")
        assert two == ddl.RenameColumn("TO", ";--")


def test_quoted_words_are_never_keywords():
    assert changes("ALTER TABLE `table` ADD `primary` int, ADD `key` int, DROP `index`") == [
        ddl.AddColumn(column("primary")),
        ddl.AddColumn(column("key")),
        ddl.DropColumn("index"),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        "(",
        "a(",
        "`",
        "'",
        '"',
        "/*",
        "/*!",
        "/*!1 */",
        "--",
        "$",
        "q'[",
        "E'\\",
        ";",
        ",",
        ")",
        "\0",
    ],
)
@pytest.mark.parametrize("dialect", ["mysql", "postgresql", "oracle"])
def test_hostile_texts_neither_recurse_nor_print_nor_log(bad, dialect, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    for start in ("ALTER TABLE t ADD c int DEFAULT ", "CREATE TABLE t (a "):
        for found in ddl.parse(start + bad * 400, dialect, HERE):
            assert isinstance(found, ddl.Statement)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@given(
    st.sampled_from(["mysql", "postgresql", "oracle"]),
    st.lists(
        st.sampled_from(
            "ALTER CREATE DROP TABLE t ( ) , ADD COLUMN int ' ` \" ; DEFAULT NOT NULL PRIMARY KEY"
            " MODIFY RENAME TO -- /* */ . 5 varchar AS SELECT [ ] :: \ud800 \x00".split(" ")
        )
        | st.text(max_size=5),
        max_size=25,
    ),
)
def test_no_text_raises(dialect, words):
    for found in ddl.parse(" ".join(words), dialect, HERE):
        assert found.reason is not None or found.changes


# -- what a text does ------------------------------------------------------------------------------


def test_the_text_decides_the_action_before_the_word_of_the_producer():
    assert ddl.action_of("ALTER TABLE t RENAME TO u", "mariadb", "alter") == "rename"
    assert ddl.action_of("SET NAMES utf8; DROP TABLE t", "mysql", "other") == "drop"


@pytest.mark.parametrize(
    ("text", "product"),
    [
        (None, "mysql"),
        ("GRANT ALL ON x TO y", "mysql"),
        ("TRUNCATE a; DROP TABLE b", "mysql"),
        ("DROP TABLE a", "sqlserver"),
        ("DROP TABLE a", None),
    ],
)
def test_the_producer_gives_what_the_text_lacks(text, product):
    assert ddl.action_of(text, product, "alter") == "alter"


def test_a_table_comes_from_the_text_where_the_producer_names_none():
    assert ddl.table_of("drop database x", "mysql", TableId("x")) == TableId("x")
    assert ddl.table_of("SET a = 1; DROP TABLE t", "mysql", HERE) == T
    assert ddl.table_of("DROP TABLE u", "mysql", T) == T
    assert ddl.table_of("GRANT x", "mysql", HERE) == HERE


def test_a_text_of_a_known_database_has_statements():
    statements = ddl.statements_of("ALTER TABLE t DROP a", "mysql", T)
    assert [statement.changes for statement in statements] == [(ddl.DropColumn("a"),)]
    assert ddl.statements_of("ALTER TABLE t DROP a", None, T) == ()
    assert ddl.statements_of(None, "mysql", T) == ()


# -- changes to schemas ----------------------------------------------------------------------------

SHAPE = ddl.Shape(
    TableSchema((column("id", nullable=False), column("a"), column("b", String(), "text"))), ("id",)
)


def after(text, dialect="mysql", shape=SHAPE):
    return ddl.apply_changes(shape, changes(text, dialect), ignore_case=dialect == "mysql")


def names(shape):
    return [one.name for one in shape.schema.columns]


def test_added_columns_have_the_place_of_the_statement():
    found = after("ALTER TABLE t ADD x int AFTER id, ADD y int FIRST, ADD z int")
    assert names(found) == ["y", "id", "x", "a", "b", "z"]


def test_a_dropped_column_leaves_the_key():
    found = after("ALTER TABLE t DROP id")
    assert (names(found), found.key) == (["a", "b"], ())


def test_a_renamed_column_stays_in_the_key():
    found = after("ALTER TABLE t RENAME COLUMN id TO nr")
    assert (names(found), found.key) == (["nr", "a", "b"], ("nr",))


def test_a_modified_column_may_move_and_get_a_name():
    found = after("ALTER TABLE t CHANGE a n bigint NOT NULL DEFAULT '3' AFTER b")
    assert found.schema.columns[2] == column("n", Integer(64), "bigint", False, default=3)
    assert names(found) == ["id", "b", "n"]


def test_a_key_column_stays_not_null_when_it_is_modified():
    found = after("ALTER TABLE t MODIFY id bigint")
    assert found.schema.by_name["id"].nullable is False


def test_properties_that_a_statement_does_not_name_stay():
    shape = ddl.Shape(TableSchema((column("a", nullable=False, default=5),)))
    found = after("ALTER TABLE t ALTER a SET DEFAULT 6", "postgresql", shape)
    assert found.schema.columns == (column("a", nullable=False, default=6),)
    found = after("ALTER TABLE t ALTER a TYPE boolean", "postgresql", shape)
    # the default was said in values of another type
    assert found.schema.columns == (column("a", Boolean(), "boolean", False),)


def test_the_key_changes():
    found = after("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b, a)")
    assert found.key == ("b", "a")
    assert [one.nullable for one in found.schema.columns] == [False, False, False]
    assert after("ALTER TABLE t DROP PRIMARY KEY").key == ()


def test_names_that_differ_by_case_are_one_in_mysql_alone():
    assert names(after("ALTER TABLE t DROP `A`")) == ["id", "b"]
    with pytest.raises(ddl.MisfitError):
        after('ALTER TABLE t DROP "A"', "postgresql")


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t DROP x",
        "ALTER TABLE t ADD a int",
        "ALTER TABLE t MODIFY x int",
        "ALTER TABLE t ADD x int AFTER y",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t ADD PRIMARY KEY (x)",
        "ALTER TABLE t DROP CONSTRAINT c",
    ],
)
def test_a_change_that_does_not_fit_is_refused(text):
    with pytest.raises(ddl.MisfitError):
        after(text)


def test_a_change_that_may_find_nothing_is_not():
    text = "ALTER TABLE t DROP COLUMN IF EXISTS x, ADD COLUMN IF NOT EXISTS a bigint"
    assert after(text + ", MODIFY IF EXISTS y int, ADD KEY k (a)") == SHAPE


def test_a_new_table_and_its_changes_give_its_shape():
    (created,) = changes("CREATE TABLE t (id int, d decimal(4,1) DEFAULT 1.5, PRIMARY KEY (id))")
    shape = ddl.shape_of(created)
    assert shape.schema.columns == (
        column("id", nullable=False),
        column("d", Decimal(4, 1), "decimal(4,1)", default=decimal.Decimal("1.5")),
    )
    assert after("ALTER TABLE t ADD e json", shape=shape).key == ("id",)


def test_a_column_without_a_type_is_unknown():
    (created,) = changes("CREATE TABLE t (a NUMBER, b AS (a + 1))", "oracle")
    assert created.columns[1] == Column("B", UNKNOWN, None, True, generated=True)
