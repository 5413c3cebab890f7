# SPDX-License-Identifier: Apache-2.0
"""The event trigger of a real PostgreSQL writes the statements that change tables into the log."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from postgres_server import PostgresServer
from postgres_source import Source, new_source

from changelane.capture.postgres.ddl_trigger import INSTALLATION
from changelane.formats.debezium_envelope.reported_ddl import DDL_PREFIX, reported_statement


@pytest.fixture
def source(postgres_server: PostgresServer) -> Iterator[Source]:
    with new_source(postgres_server) as source:
        source.run(INSTALLATION)
        source.create_slot("test_decoding")
        yield source


def statements(source: Source) -> list[tuple[str, str]]:
    """The tables and statements of the log since the last call."""
    rows = source.rows(f"SELECT data FROM pg_logical_slot_get_changes('{source.slot}', NULL, NULL)")
    marker = f"prefix: {DDL_PREFIX}, "
    found = []
    for (text,) in rows:
        if marker in text:
            content = text[text.index("content:") + len("content:") :]
            statement = reported_statement(content.encode(), "shop")
            assert statement is not None
            found.append((f"{statement.table.schema}.{statement.table.name}", statement.text))
    return found


def test_created_and_dropped_tables_have_statements_of_the_catalog(source: Source) -> None:
    source.run(
        'CREATE TABLE "Old Orders" (b text NOT NULL, id serial, a numeric(12,2), '
        "PRIMARY KEY (id, b))",
        "CREATE TABLE copy AS SELECT 1 AS n",
        "CREATE SCHEMA other",
        "CREATE TABLE other.t ()",
        "CREATE TEMP TABLE hidden (id int)",
        "CREATE UNLOGGED TABLE unlogged (id int)",
        "DO $$ BEGIN CREATE TABLE made (id int); END $$",
        "DROP SCHEMA other CASCADE",
        'DROP TABLE IF EXISTS "Old Orders", copy, missing',
        "DROP TABLE hidden",
    )
    found = statements(source)
    # the order of the tables of one statement is the catalog's
    assert [*found[:5], *sorted(found[5:])] == [
        (
            "public.Old Orders",
            (
                'CREATE TABLE public."Old Orders" (b text NOT NULL, id integer NOT NULL, '
                "a numeric(12,2), PRIMARY KEY (id, b))"
            ),
        ),
        ("public.copy", "CREATE TABLE public.copy (n integer)"),
        ("other.t", "CREATE TABLE other.t ()"),
        ("public.made", "CREATE TABLE public.made (id integer)"),
        ("other.t", "DROP TABLE other.t"),
        ("public.Old Orders", 'DROP TABLE public."Old Orders"'),
        ("public.copy", "DROP TABLE public.copy"),
    ]


def test_altered_tables_have_their_statement_of_a_script(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int); CREATE SCHEMA s; CREATE TABLE s.t (a int)"
    )
    statements(source)
    script = [
        "ALTER TABLE t RENAME a TO b",
        "ALTER TABLE IF EXISTS missing ADD x int",
        "CREATE TABLE IF NOT EXISTS t (id int)",
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE s.t ADD COLUMN b int DEFAULT 3",
        "ALTER TABLE t ALTER b TYPE bigint, DROP COLUMN IF EXISTS c",
        "SET search_path = s",
        "ALTER TABLE t DROP COLUMN a",
        "SET search_path = public",
        "ALTER TABLE t RENAME TO u",
    ]
    source.run("; ".join(script))
    assert statements(source) == [
        ("public.t", script[0]),
        ("s.t", script[4]),
        ("public.t", script[5]),
        ("s.t", script[7]),
        ("public.t", script[9]),
    ]
    source.run("BEGIN", "ROLLBACK")
    with source.server.connect(source.database, autocommit=False) as connection:
        connection.execute("ALTER TABLE u ADD gone int")
        connection.rollback()
        connection.execute("ALTER TABLE u ADD kept int")
        connection.commit()
    assert statements(source) == [("public.u", "ALTER TABLE u ADD kept int")]


def test_statements_of_all_roles_and_sessions_are_written(source: Source) -> None:
    source.run("CREATE ROLE owner_of_t", "GRANT CREATE ON SCHEMA public TO owner_of_t")
    try:
        source.run(
            "SET SESSION AUTHORIZATION owner_of_t",
            "CREATE TEMP TABLE pg_class (oid oid)",
            "CREATE TABLE t (id int)",
        )
        source.run(
            "SET session_replication_role = replica", "ALTER TABLE t ADD a int", "DROP TABLE t"
        )
        assert [text for _, text in statements(source)] == [
            "CREATE TABLE public.t (id integer)",
            "ALTER TABLE t ADD a int",
            "DROP TABLE public.t",
        ]
    finally:
        source.run("REVOKE CREATE ON SCHEMA public FROM owner_of_t", "DROP ROLE owner_of_t")


@pytest.mark.parametrize(
    "text",
    [
        "DO $$ BEGIN ALTER TABLE t RENAME a TO b; END $$",
        "SELECT change(); ALTER TABLE t ADD z int",
        "SAVEPOINT p; ALTER TABLE t ADD y int; ROLLBACK TO p; ALTER TABLE t ADD z int",
        "SAVEPOINT p; ALTER TABLE t ADD y int; ABORT; BEGIN; ALTER TABLE t RENAME a TO b",
        "ALTER TABLE t SET SCHEMA s",
    ],
)
def test_statement_that_is_not_in_the_text_is_unknown(source: Source, text: str) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        "CREATE SCHEMA s",
        "CREATE FUNCTION change() RETURNS void LANGUAGE sql AS 'ALTER TABLE t RENAME a TO b'",
    )
    statements(source)
    source.run(f"BEGIN; {text}; COMMIT" if "SAVEPOINT" in text else text)
    schema = "s" if "SCHEMA" in text else "public"
    found: list[Any] = statements(source)
    assert found[0] == (f"{schema}.t", f'ALTER TABLE "{schema}"."t"')
    # a function does not count
    assert found[1:] in ([], [("public.t", "ALTER TABLE t ADD z int")])


def test_check_wants_the_trigger_only_if_the_source_does(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY)")
    source.publish("t")
    assert "ddl_trigger" not in source.check(needs_ddl_trigger=True)
    source.run("ALTER EVENT TRIGGER changelane_drop DISABLE")
    finding = source.check(needs_ddl_trigger=True)["ddl_trigger"]
    assert "--print-sql" in finding.fix
    assert "ddl_trigger" not in source.check()
    source.run(INSTALLATION)  # again
    assert "ddl_trigger" not in source.check(needs_ddl_trigger=True)


def test_installation_takes_over_what_another_role_prepared(source: Source) -> None:
    source.run("CREATE ROLE stranger")
    try:
        source.run(
            "ALTER SCHEMA changelane OWNER TO stranger",
            "ALTER FUNCTION changelane.report_ddl() OWNER TO stranger",
            "ALTER FUNCTION changelane.report_drop() OWNER TO stranger",
            INSTALLATION,
        )
        owners = (
            "SELECT nspowner FROM pg_namespace WHERE nspname = 'changelane' UNION ALL "
            "SELECT proowner FROM pg_proc WHERE proname IN ('report_ddl', 'report_drop')"
        )
        assert source.rows(
            f"SELECT DISTINCT rolname FROM ({owners}) AS o (id) JOIN pg_roles r ON r.oid = o.id"
        ) == source.rows("SELECT current_user")
    finally:
        source.run("DROP ROLE stranger")


def test_content_is_utf_8_whatever_the_encoding_of_the_database_is(
    postgres_server: PostgresServer,
) -> None:
    name, table = f"latin1_{time.monotonic_ns()}", "t\u00e9"
    options = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with postgres_server.connect() as connection:
        connection.execute(f"CREATE DATABASE {name} {options}")
    try:
        with postgres_server.connect(name) as connection:
            connection.execute(INSTALLATION)
            create_slot = "SELECT pg_create_logical_replication_slot(%s, 'test_decoding', true)"
            connection.execute(create_slot, [name])
            connection.execute(f"CREATE TABLE {table} (a int)")
            connection.execute(f"ALTER TABLE {table} RENAME a TO \u00fc")
            connection.execute(f"DROP TABLE {table}")
            changes = "SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL)"
            rows = connection.execute(changes, [name]).fetchall()
        found = [
            reported_statement(text.partition("content:")[2].encode("latin-1"), "shop")
            for (text,) in rows
            if DDL_PREFIX in text
        ]
        assert [statement and statement.text for statement in found] == [
            f'CREATE TABLE public."{table}" (a integer)',
            f"ALTER TABLE {table} RENAME a TO \u00fc",
            f'DROP TABLE public."{table}"',
        ]
    finally:
        with postgres_server.connect() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_content_is_json_whatever_the_names_are(source: Source) -> None:
    source.run('CREATE TABLE "a"" \\ \'é" (id int)')
    rows = source.rows(f"SELECT data FROM pg_logical_slot_get_changes('{source.slot}', NULL, NULL)")
    texts = [text for (text,) in rows if DDL_PREFIX in text]
    content = json.loads(texts[0][texts[0].index("content:") + len("content:") :])
    assert content["table"] == "a\" \\ 'é"
