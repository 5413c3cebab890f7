# SPDX-License-Identifier: Apache-2.0
"""Logins, tables by name, publications, slots and markers of a real PostgreSQL."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer
from postgres_source import PUBLICATION, Source, new_source

from changelane.capture.postgres import (
    PostgresConnection,
    connect,
    create_publication,
    create_slot,
    current_lsn,
    drop_slot,
    emit_marker,
    list_tables,
    server_identity,
    slot_state,
)
from changelane.errors import ConfigError, UnreachableError

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"


@pytest.fixture
def source(postgres_server: PostgresServer) -> Iterator[Source]:
    with new_source(postgres_server) as source:
        yield source


@pytest.fixture
def connection(source: Source) -> "Iterator[psycopg.Connection]":
    with source.server.connect(source.database) as connection:
        yield connection


def login_of(server: PostgresServer, **changes: object) -> PostgresConnection:
    options = {
        "host": server.host,
        "port": server.port,
        "database": server.database,
        "user": server.user,
        "password": server.password,
        "connect_timeout_s": 3,
    }
    return PostgresConnection(**{**options, **changes})


# -- logins


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"password": "a secret"}, ConfigError, "rejects the user postgres or the password"),
        ({"user": "nobody"}, ConfigError, "rejects the user nobody or the password"),
        ({"password": ""}, ConfigError, "requires a password for postgres"),
        ({"database": "no such"}, ConfigError, "there is no database no such at 127.0.0.1"),
        ({"port": 1}, UnreachableError, "is not reachable: check host and port"),
        ({"host": "no.such.host.invalid"}, UnreachableError, "cannot be resolved"),
        ({"sslmode": "require"}, ConfigError, "has no TLS, but sslmode: require requires it"),
    ],
)
def test_a_rejected_login_has_a_sentence_without_the_password(
    postgres_server: PostgresServer,
    changes: dict[str, object],
    kind: type[ConfigError],
    sentence: str,
) -> None:
    options = login_of(postgres_server, **changes)
    with pytest.raises(ConfigError) as raised:
        connect(options)
    assert type(raised.value) is kind
    assert sentence in str(raised.value)
    for password in (postgres_server.password, "a secret"):
        assert password not in f"{raised.value} {raised.value!r} {options!r} {options}"
        assert raised.value.__cause__ is None


def test_a_server_without_an_answer_is_unreachable_after_the_timeout(
    postgres_server: PostgresServer,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = login_of(postgres_server, port=silent.getsockname()[1], connect_timeout_s=2)
        with pytest.raises(UnreachableError, match="does not answer in 2 s"):
            connect(options)


def test_the_environment_supplies_no_login(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSWORD", postgres_server.password)
    password_file = tmp_path / "pgpass"
    password_file.write_text("*:*:*:*:" + postgres_server.password.replace("\\", "\\\\") + "\n")
    password_file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(password_file))
    with pytest.raises(ConfigError):
        connect(login_of(postgres_server, password=""))


def test_tls_is_verified_against_the_authority_and_the_host(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    del postgres_server  # which skips where PostgreSQL is not installed
    with PostgresServer(tls="required") as server:
        root = str(server.certificate.root)
        with connect(login_of(server, sslmode="verify-full", sslrootcert=root)) as connection:
            assert connection.execute("SELECT ssl FROM pg_stat_ssl").fetchone() == (True,)
        with pytest.raises(ConfigError, match="without TLS: set sslmode: require"):
            connect(login_of(server, sslmode="disable"))
        with pytest.raises(ConfigError, match="set sslrootcert to its file"):
            connect(login_of(server, sslmode="verify-full", sslrootcert="/no/such/file"))
        other = tmp_path / "other.crt"
        other.write_bytes(Path(server.certificate.certificate).read_bytes())
        with pytest.raises(ConfigError, match=r"TLS connection .* fails: check sslrootcert"):
            connect(login_of(server, sslmode="verify-full", sslrootcert=str(other)))


def test_a_connection_resolves_names_in_the_catalog_only(source: Source) -> None:
    source.run(
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        "CREATE FUNCTION public.version() RETURNS text LANGUAGE sql AS $$ SELECT 'trap' $$",
        "ALTER DATABASE " + source.database + " SET search_path = public, pg_catalog",
    )
    with connect(source.login) as connection:
        assert connection.execute("SELECT version()").fetchone() != ("trap",)


# -- tables

HOSTILE_NAMES = ['a "b', "A.B", "with space", "Übergröße", "*", "a?c", "select", "new\nline", "'"]


def test_hostile_names_are_listed_exactly(source: Source, connection: "psycopg.Connection") -> None:
    for name in HOSTILE_NAMES:
        quoted = '"' + name.replace('"', '""') + '"'
        source.run(f"CREATE SCHEMA {quoted}", f"CREATE TABLE {quoted}.{quoted} (id int)")
    tables = list_tables(connection, ["*.*"])
    assert sorted((table.schema, table.name) for table in tables) == sorted(
        (name, name) for name in HOSTILE_NAMES
    )
    for name in HOSTILE_NAMES:
        quoted = '"' + name.replace('"', '""') + '"'
        (table,) = list_tables(connection, [f"{quoted}.{quoted}"])
        assert (table.database, table.schema, table.name) == (source.database, name, name)


def test_wildcards_select_tables_but_not_their_partitions(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.run(
        ORDERS,
        'CREATE TABLE "Orders" (id int)',
        "CREATE VIEW orders_view AS SELECT * FROM orders",
        "CREATE TABLE events (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10)",
        "CREATE SCHEMA other",
        "CREATE TABLE other.orders (id int)",
    )

    def names(*patterns: str) -> list[str]:
        return [f"{table.schema}.{table.name}" for table in list_tables(connection, patterns)]

    assert names("public.*") == ["public.Orders", "public.events", "public.orders"]
    assert names("*.orders", "public.o?ders") == ["other.orders", "public.orders"]
    assert names("public.events_1") == ["public.events_1"]
    assert names("public.none") == []
    assert names() == []
    with pytest.raises(ConfigError, match=r"'orders' is not schema\.table"):
        names("orders")


# -- publications


def test_a_publication_is_created_once_and_completed_later(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.run(ORDERS, "CREATE UNLOGGED TABLE temporary_orders (id int PRIMARY KEY)")
    (statement,) = create_publication(connection, PUBLICATION, ["public.*"])
    assert statement.startswith(f'CREATE PUBLICATION "{PUBLICATION}" FOR TABLE ONLY "public".')
    assert create_publication(connection, PUBLICATION, ["public.*"]) == []
    source.run(
        'CREATE TABLE "Items" (id int PRIMARY KEY)',
        f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert')",
    )
    assert len(create_publication(connection, PUBLICATION, ["public.*"])) == 2
    findings = source.check()
    assert not [code for code in findings if code.startswith("publication")]
    with pytest.raises(ConfigError, match="no table that can be captured"):
        create_publication(connection, PUBLICATION, ["public.none"])


def test_a_user_without_the_tables_gets_the_statement_for_their_owner(source: Source) -> None:
    source.run(ORDERS)
    with (
        connect(source.login) as connection,
        pytest.raises(ConfigError, match=r"lacks a privilege.*owner of the tables: CREATE PUBL"),
    ):
        create_publication(connection, PUBLICATION, ["public.orders"])


@pytest.mark.parametrize("name", ["Orders", "a,b", "", "1a", "a" * 64, 'a"b'])
def test_a_publication_name_that_readers_change_is_rejected(
    connection: "psycopg.Connection", name: str
) -> None:
    with pytest.raises(ConfigError, match=r"publication name .* is invalid"):
        create_publication(connection, name, ["public.*"])


# -- slots


def test_a_slot_is_created_once_and_dropped_once(
    source: Source, connection: "psycopg.Connection"
) -> None:
    before = current_lsn(connection)
    created = create_slot(connection, source.slot)
    assert created.is_new
    assert before <= created.consistent_lsn <= current_lsn(connection)
    again = create_slot(connection, source.slot)
    assert (again.is_new, again.consistent_lsn) == (False, created.consistent_lsn)
    state = slot_state(connection, source.slot)
    assert (state.plugin, state.database, state.is_active) == ("pgoutput", source.database, False)
    assert (state.wal_status, state.safe_wal_size, state.is_lost) == ("reserved", None, False)
    assert state.restart_lsn <= state.confirmed_flush_lsn == created.consistent_lsn
    assert 0 <= state.lag_bytes <= state.retained_bytes
    assert state.headroom_text.endswith("kept, without a limit")
    assert drop_slot(connection, source.slot)
    assert not drop_slot(connection, source.slot)
    assert slot_state(connection, source.slot) is None


def test_changes_after_the_consistent_point_are_in_the_slot(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.run(ORDERS, "INSERT INTO orders VALUES (1, 'earlier')")
    create_publication(connection, PUBLICATION, ["public.*"])
    create_slot(connection, source.slot)
    source.run("INSERT INTO orders VALUES (2, 'later')")
    changes = source.log()
    assert b"later" in changes
    assert b"earlier" not in changes


def test_the_name_of_another_slot_is_not_taken(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.create_slot("test_decoding")
    with pytest.raises(ConfigError, match=r"in use \(plugin test_decoding, .*: choose another"):
        create_slot(connection, source.slot)
    with pytest.raises(ConfigError, match="slot name 'a-b' is invalid"):
        create_slot(connection, "a-b")


def test_a_slot_that_waits_for_a_transaction_names_its_process(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.run(ORDERS)
    with source.server.connect(source.database, autocommit=False) as writer:
        writer.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ConfigError, match=f"end them.*{writer.info.backend_pid}"):
            create_slot(connection, source.slot, timeout_s=1)
        assert slot_state(connection, source.slot) is None
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
        writer.rollback()
    assert create_slot(connection, source.slot).is_new


def test_a_reader_without_the_privilege_gets_a_sentence(source: Source) -> None:
    source.run(f'ALTER ROLE "{source.user}" NOREPLICATION')
    with (
        connect(source.login) as connection,
        pytest.raises(ConfigError, match=f"creation of slot {source.slot} fails: the user lacks"),
    ):
        create_slot(connection, source.slot)


# -- markers and positions


def test_a_marker_follows_all_committed_changes(
    source: Source, connection: "psycopg.Connection"
) -> None:
    source.run(ORDERS)
    create_publication(connection, PUBLICATION, ["public.*"])
    create_slot(connection, source.slot)
    source.run("INSERT INTO orders VALUES (1, 'before')")
    marker = emit_marker(connection, "it's a \\ marker")
    source.run("INSERT INTO orders VALUES (2, 'after')")
    rows = source.rows(
        f"SELECT data FROM pg_logical_slot_peek_binary_changes('{source.slot}', NULL, NULL, "
        f"'proto_version', '1', 'publication_names', '{PUBLICATION}', 'messages', 'true')"
    )
    log = b"".join(data for (data,) in rows)
    parts = [b"before", b"changelane\0", marker.content.encode(), b"after"]
    found = [log.index(part) for part in parts]
    assert found == sorted(found)
    assert marker.content == f"{marker.token} it's a \\ marker"
    assert marker.lsn < current_lsn(connection)
    assert marker.token != emit_marker(connection, "").token
    with connection.transaction(), pytest.raises(ValueError, match="in no transaction"):
        emit_marker(connection, "")


def test_a_reader_without_rights_on_tables_writes_markers(source: Source) -> None:
    with connect(source.login) as connection:
        assert emit_marker(connection, "").lsn > 0


def test_positions_grow_with_changes_of_concurrent_sessions(source: Source) -> None:
    source.run(ORDERS)
    with connect(source.login) as connection:
        before = current_lsn(connection)
        writer = threading.Thread(target=source.run, args=("INSERT INTO orders VALUES (1)",))
        writer.start()
        writer.join()
        assert current_lsn(connection) > before


def test_the_identity_of_a_log_changes_with_its_server(source: Source) -> None:
    with connect(source.login) as connection:
        identity = server_identity(connection)
        assert identity == server_identity(connection)
        assert identity.timeline == 1
    with PostgresServer() as other, connect(login_of(other)) as connection:
        assert server_identity(connection).system_identifier != identity.system_identifier
