# SPDX-License-Identifier: Apache-2.0
"""Statements that follow the transforms of their table, and statements written again."""

import pytest
from msgspec import UNSET

from changelane.ddl import (
    AddIndex,
    DropIndex,
    Other,
    parse,
)
from changelane.ddl.render import UnwritableError, render
from changelane.errors import TransformError
from changelane.event import DataChange, Key, Op, SchemaChange, Source
from changelane.schema import Column, TableId, TableSchema
from changelane.transforms.cast import Cast
from changelane.transforms.chain import Chain
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.route import Route
from changelane.types import Integer, String

SHOP = TableId("shop", None, "orders")
MASK = Mask(
    tables=("shop.orders",), columns=("ssn",), method="hash", secret="a secret of the tests"
)


def said(ddl, *steps, product="mysql", table=SHOP, **fields):
    chain = Chain(steps)
    event = SchemaChange(table, "alter", ddl, source=Source(product), **fields)
    return chain(event)


def code(ddl, *steps, **fields):
    with pytest.raises(TransformError) as caught:
        said(ddl, *steps, **fields)
    return caught.value.code


WRITTEN = {
    "mysql": [
        "CREATE TABLE `a ``b` (id bigint unsigned NOT NULL AUTO_INCREMENT, PRIMARY KEY (id))",
        "CREATE TABLE t (n varchar(20) DEFAULT 'x''y', e enum('a','b'))",
        "CREATE TABLE t (ts timestamp NULL DEFAULT CURRENT_TIMESTAMP)",
        "CREATE TABLE IF NOT EXISTS x LIKE y",
        "ALTER TABLE t ADD COLUMN x int NOT NULL DEFAULT 3 AFTER id, DROP COLUMN y",
        "ALTER TABLE t CHANGE a b decimal(10,2) NULL DEFAULT '1.00'",
        "ALTER TABLE t MODIFY a text FIRST",
        "ALTER TABLE t ADD x int, RENAME TO u",
        "ALTER TABLE t ADD PRIMARY KEY (a,b)",
        "RENAME TABLE a TO b, c TO other.d",
        "DROP TABLE IF EXISTS a, b",
        "TRUNCATE TABLE t",
    ],
    "postgresql": [
        'CREATE TABLE s.t (id int PRIMARY KEY, "N""" text NOT NULL DEFAULT \'a\')',
        "ALTER TABLE t ALTER a TYPE bigint, ALTER b SET NOT NULL, ALTER c DROP DEFAULT",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t ADD x timestamptz NOT NULL",
        "DROP TABLE a CASCADE",
    ],
    "oracle": [
        "CREATE TABLE t (id NUMBER(10) NOT NULL, n VARCHAR2(20) DEFAULT 'a', PRIMARY KEY (id))",
        "ALTER TABLE t ADD (x NUMBER(3), y DATE)",
        "ALTER TABLE t MODIFY (x NUMBER(9) NOT NULL)",
        "ALTER TABLE t RENAME COLUMN a TO b",
        "ALTER TABLE t DROP COLUMN x",
    ],
}
USUAL = {
    "mysql": TableId("shop"),
    "postgresql": TableId("db", "public"),
    "oracle": TableId("db", "S"),
}


@pytest.mark.parametrize(
    ("dialect", "text"), [(dialect, text) for dialect, texts in WRITTEN.items() for text in texts]
)
def test_a_rewritten_statement_has_the_same_effect(dialect, text):
    beside = AddIndex | DropIndex | Other
    for statement in parse(text, dialect, USUAL[dialect]):
        changes = [one for one in statement.changes if not isinstance(one, beside)]
        again = parse(render(changes, dialect, statement.table), dialect, USUAL[dialect])
        assert [one for found in again for one in found.changes] == changes


def test_what_would_be_read_otherwise_is_not_written():
    found = parse("ALTER TABLE t ADD COLUMN x int AS (y + 1)", "mysql", TableId("shop"))[0]
    with pytest.raises(UnwritableError):
        render(found.changes, "mysql", found.table)
    with pytest.raises(UnwritableError):
        render([], "mysql", SHOP)


def test_a_statement_about_other_columns_keeps_its_text():
    ddl = "alter table orders add column x int, drop column y -- as it was"
    assert said(ddl, MASK).ddl == ddl
    event = SchemaChange(SHOP, "alter", ddl, source=Source("mysql"), details={"a": 1})
    assert Chain([Rename(tables=("other",), columns={"a": "b"})])(event) is event


def test_a_renamed_column_is_renamed_in_statements():
    rename = Rename(columns={"note": "remark"})
    at = "ALTER TABLE `shop`.`orders` "
    add = said("ALTER TABLE orders ADD note TEXT AFTER id", rename)
    assert add.ddl == at + "ADD COLUMN `remark` TEXT AFTER `id`"
    assert said("ALTER TABLE orders DROP note", rename).ddl == at + "DROP COLUMN `remark`"
    to = said("ALTER TABLE orders RENAME COLUMN note TO memo", rename)
    assert to.ddl == at + "RENAME COLUMN `remark` TO `memo`"
    assert said("ALTER TABLE orders RENAME COLUMN note TO remark", rename) is None


def test_a_dropped_column_leaves_statements():
    project = Project(drop=("note",))
    assert said("ALTER TABLE orders ADD note TEXT", project) is None
    both = said("ALTER TABLE orders ADD note TEXT, ADD x INT", project)
    assert both.ddl == "ALTER TABLE `shop`.`orders` ADD COLUMN `x` INT"
    gone = said("ALTER TABLE orders RENAME COLUMN memo TO note", project)
    assert gone.ddl == "ALTER TABLE `shop`.`orders` DROP COLUMN `memo`"
    ddl = "ALTER TABLE orders RENAME COLUMN note TO memo"
    assert code(ddl, project) == "untranslated_statement"


def test_a_masked_column_is_text_and_its_default_is_masked_in_statements():
    made = said("ALTER TABLE orders ADD ssn VARCHAR(11) NOT NULL DEFAULT '123-45-6789'", MASK)
    assert "123-45" not in made.ddl
    column = parse(made.ddl, "mysql")[0].changes[0].column
    assert (column.type, column.nullable, len(column.default)) == (String(), False, 64)
    made = said("ALTER TABLE orders MODIFY ssn INT NOT NULL DEFAULT 12345", MASK)
    assert "12345" not in made.ddl
    assert parse(made.ddl, "mysql")[0].changes[0].type == String()
    assert said("ALTER TABLE orders ADD CHECK (ssn <> '123-45-6789')", MASK) is None


@pytest.mark.parametrize(
    "declared", ["INT", "INT DEFAULT 5", "INT NOT NULL", "INT NOT NULL DEFAULT 5"]
)
def test_a_new_column_that_is_masked_as_null_is_nullable(declared):
    null = Mask(columns=("ssn",), method="null")
    made = said(f"ALTER TABLE orders ADD ssn {declared}", null)
    (added,) = parse(made.ddl, "mysql")[0].changes
    assert (added.column.nullable, added.default) == (True, None)
    assert (added.column.default, added.column.type) == (UNSET, Integer(32))


def test_a_masked_column_cannot_leave_its_mask_by_a_new_name_or_become_a_key():
    ddl = "ALTER TABLE orders RENAME COLUMN ssn TO social"
    assert code(ddl, MASK) == "untranslated_statement"
    ddl = "ALTER TABLE orders CHANGE ssn social VARCHAR(11)"
    assert code(ddl, MASK) == "untranslated_statement"
    assert code("ALTER TABLE orders ADD PRIMARY KEY (ssn)", MASK) == "key_column"


def test_mysql_ignores_the_case_of_columns_in_statements():
    rename = Rename(columns={"x": "y"})
    assert said("ALTER TABLE orders DROP X", rename).ddl == (
        "ALTER TABLE `shop`.`orders` DROP COLUMN `y`"
    )
    assert said("ALTER TABLE orders CHANGE X Z INT", rename).ddl == (
        "ALTER TABLE `shop`.`orders` CHANGE COLUMN `y` `Z` INT NULL"
    )
    assert code("ALTER TABLE orders RENAME COLUMN SSN TO social", MASK) == "untranslated_statement"
    assert code("ALTER TABLE orders ADD PRIMARY KEY (Ssn)", MASK) == "key_column"
    assert said("ALTER TABLE orders DROP COLUMN SSN", Project(drop=("ssn",))) is None
    # a new column has the name that the statement spells
    added = "ALTER TABLE orders ADD X INT AFTER a"
    assert said(added, rename).ddl == added
    text = 'ALTER TABLE orders DROP COLUMN "X"'
    assert said(text, rename, product="postgresql").ddl == text


def test_a_key_that_is_cast_has_its_type_in_a_new_table():
    text = "CREATE TABLE orders (n INT PRIMARY KEY)"
    made = said(text, Cast(columns={"n": "string"}))
    (created, *_) = parse(made.ddl, "mysql")[0].changes
    assert (created.key, created.columns[0].type) == (("n",), String())
    assert code(text, Cast(columns={"n": "int8"})) == "key_column"


def test_a_cast_column_has_its_type_in_statements():
    cast = Cast(columns={"n": "int64"})
    made = said("ALTER TABLE orders ADD n VARCHAR(9) DEFAULT '7'", cast)
    column = parse(made.ddl, "mysql")[0].changes[0].column
    assert (column.type, column.default) == (Integer(64), 7)


def test_a_column_that_is_cast_is_not_renamed_to_one_that_is_cast_to_another_type():
    text = "ALTER TABLE orders RENAME COLUMN a TO b"
    assert code(text, Cast(columns={"a": "string", "b": "int64"})) == "untranslated_statement"
    at = "ALTER TABLE `shop`.`orders` "
    made = said(text, Cast(columns={"a": "string", "b": "string"}), Rename(columns={"b": "c"}))
    assert made.ddl == at + "RENAME COLUMN `a` TO `c`"


@pytest.mark.parametrize(
    ("defined", "new", "text"),
    [
        ("DATE DEFAULT '2020-01-01'", "timestamp(6)", "datetime(6) DEFAULT '2020-01-01 00:00:00'"),
        ("DATETIME DEFAULT '2020-01-01 00:00:00'", "date", "date DEFAULT '2020-01-01'"),
        ("INT DEFAULT 7", "decimal(9,2)", "decimal(9,2) DEFAULT 7.00"),
        ("DECIMAL(5,2) DEFAULT 1.50", "float64", "double DEFAULT 1.5"),
        ("DATE NOT NULL", "timestamp(6)", "datetime(6) NOT NULL"),  # unknown before and after
        ("DATE DEFAULT (curdate())", "timestamp(6)", "datetime(6) DEFAULT (curdate())"),
        ("INT NOT NULL", "int64", "BIGINT NOT NULL"),
        ("INT NOT NULL", "string", "longtext DEFAULT '0' NOT NULL"),
        ("INT", "string", "longtext"),
    ],
)
def test_rows_from_before_a_column_that_is_cast_get_what_becomes_of_their_default(
    defined, new, text
):
    made = said(f"ALTER TABLE orders ADD n {defined}", Cast(columns={"n": new}))
    assert made.ddl.lower() == f"ALTER TABLE `shop`.`orders` ADD COLUMN `n` {text}".lower()


@pytest.mark.parametrize(
    ("defined", "new"),
    [
        ("DATE NOT NULL", "string"),  # what MySQL fills it with is not known here
        ("TIMESTAMP", "string"),
        ("VARCHAR(9) DEFAULT 'x'", "bytes"),
        ("INT AS (id + 1)", "int64"),
        ("DATE DEFAULT '0000-00-00'", "string"),
        ("INT NOT NULL AUTO_INCREMENT UNIQUE", "string"),
        ("INT NOT NULL AUTO_INCREMENT UNIQUE", "int64"),
    ],
)
def test_a_column_with_undetermined_values_of_older_rows_is_rejected(defined, new):
    ddl = f"ALTER TABLE orders ADD n {defined}"
    assert code(ddl, Cast(columns={"n": new})) == "untranslated_statement"


def test_a_column_that_mysql_may_count_in_keeps_its_index():
    route = Route(pattern=r"shop\.orders", database="lake", table="sales")
    made = said("ALTER TABLE orders ADD n INT NOT NULL AUTO_INCREMENT UNIQUE", route)
    assert isinstance(parse(made.ddl, "mysql")[0].changes[1], AddIndex)


def test_a_routed_table_has_its_name_in_statements():
    route = Route(pattern=r"shop\.orders", database="lake", table="sales")
    made = said("ALTER TABLE orders ADD x INT", route)
    assert made.table == TableId("lake", None, "sales")
    assert made.ddl == "ALTER TABLE `lake`.`sales` ADD COLUMN `x` INT"
    made = said("DROP TABLE orders, other", route)
    assert made.ddl == "DROP TABLE `lake`.`sales`; DROP TABLE `shop`.`other`"
    assert made.action == "drop"
    made = said("RENAME TABLE orders TO old, new TO orders", route)
    assert made.ddl == (
        "RENAME TABLE `lake`.`sales` TO `shop`.`old`; RENAME TABLE `shop`.`new` TO `lake`.`sales`"
    )


def test_a_copy_of_an_online_schema_change_has_the_transforms_of_its_table():
    steps = [
        Include(tables=("shop.orders",)),
        MASK,
        Route(pattern=r"shop\.orders", database="lake", table="ods_{table}"),
    ]
    chain = Chain(steps, skips_shadows=True)

    def made(ddl, name, **fields):
        table = TableId("shop", None, name)
        return chain(SchemaChange(table, "alter", ddl, source=Source("mysql"), **fields)).ddl

    copy = "CREATE TABLE _orders_gho LIKE orders"
    assert (
        made(copy, "_orders_gho")
        == "CREATE TABLE `lake`.`_ods_orders_gho` LIKE `lake`.`ods_orders`"
    )
    altered = "ALTER TABLE _orders_gho ADD x INT"
    assert made(altered, "_orders_gho") == "ALTER TABLE `lake`.`_ods_orders_gho` ADD COLUMN `x` INT"
    swap = "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"
    assert made(swap, "orders") == (
        "RENAME TABLE `lake`.`ods_orders` TO `lake`.`_ods_orders_del`; "
        "RENAME TABLE `lake`.`_ods_orders_gho` TO `lake`.`ods_orders`"
    )
    # gh-ost's table without the columns of the other one
    schema = TableSchema((Column("id", Integer(32)),))
    own = made("CREATE TABLE _orders_del (id int PRIMARY KEY)", "_orders_del", schema=schema)
    assert own == "CREATE TABLE `lake`.`_ods_orders_del` (`id` int NOT NULL)"
    # a rename would take the column out of its mask there, too
    with pytest.raises(TransformError):
        made("ALTER TABLE _orders_gho RENAME COLUMN ssn TO x", "_orders_gho")
    copied = DataChange(Op.CREATE, TableId("shop", None, "_orders_gho"), after={"ssn": "1"})
    assert chain(copied) is None
    assert code(swap, *steps) == "untranslated_statement"


def test_an_excluded_table_leaves_statements():
    steps = [Exclude(tables=("shop.log",))]
    assert said("ALTER TABLE log ADD x INT", *steps, table=TableId("shop", None, "log")) is None
    assert said("DROP TABLE orders, log", *steps).ddl == "DROP TABLE `shop`.`orders`"
    assert code("RENAME TABLE orders TO log", *steps) == "untranslated_statement"
    assert code("DROP DATABASE shop", *steps) == "untranslated_statement"
    assert said("DROP DATABASE shop", Include(operations=("create",))) is None


@pytest.mark.parametrize(
    ("ddl", "remaining"),
    [
        ("DROP TABLE orders, sales", "DROP TABLE `shop`.`ods_sales`"),
        ("RENAME TABLE orders TO orders_old, sales TO b", "RENAME TABLE `shop`.`ods_sales` TO"),
        ("DROP TABLE orders; ALTER TABLE sales ADD a INT", "ALTER TABLE `shop`.`ods_sales`"),
    ],
)
def test_a_statement_whose_first_table_is_excluded_is_of_the_next(ddl, remaining):
    steps = [Exclude(tables=("shop.orders*",)), Route(pattern=r"shop\.(.*)", table="ods_{table}")]
    schema = TableSchema((Column("id", Integer()),))
    event = SchemaChange(SHOP, "drop", ddl, schema, Key(("id",)), source=Source("mysql"))
    made = Chain(steps)(event)
    sales = TableId("shop", None, "ods_sales")
    assert (made.table, made.schema, made.key) == (sales, None, None)
    assert made.ddl.startswith(remaining)
    assert Chain(steps[:1])(event).table == TableId("shop", None, "sales")


def test_a_statement_that_is_not_read_is_refused_where_it_could_matter():
    odd = "ALTER TABLE orders FROBNICATE ssn"
    assert code(odd, MASK) == "untranslated_statement"
    assert said(odd, Rename(tables=("other",), columns={"a": "b"})).ddl == odd
    assert (
        code("EXEC sp_rename 'orders', 'x'", MASK, product="sqlserver") == "untranslated_statement"
    )


def test_the_columns_that_a_producer_lists_follow():
    schema = TableSchema((Column("id", Integer()), Column("ssn", String(), "varchar(11)")))
    made = said("ALTER TABLE orders ADD x INT", MASK, schema=schema, key=Key(("id",)))
    assert made.schema.columns[1] == Column("ssn", String())
    lacking = TableSchema((Column("id", Integer()), Column("social", String())))
    assert code("ALTER TABLE orders ADD x INT", MASK, schema=lacking) == "mask_missing"
    assert code(None, MASK, schema=schema, key=Key(("ssn",))) == "key_column"
