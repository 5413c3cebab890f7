# SPDX-License-Identifier: Apache-2.0
"""Each defect of a real PostgreSQL is found, and its statements mend it.

What a finding says of lost changes is read from the log itself, before and after.
"""

import contextlib
import time
from collections.abc import Iterator

import psycopg
import pytest
from postgres_server import PostgresServer
from postgres_source import PUBLICATION, Source, new_source

from changelane.capture.postgres import (
    PostgresConnection,
    check_server,
    connect,
    current_lsn,
    drop_slot,
    slot_state,
)
from changelane.errors import ConfigError, UnreachableError

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"
ALWAYS = {"unlimited_retention"}
"""The findings about the shared server."""
HOSTILE = 'na"me. With\'"" Ünï*?'


@pytest.fixture
def source(postgres_server: PostgresServer) -> Iterator[Source]:
    with new_source(postgres_server) as source:
        yield source


@pytest.fixture(scope="module")
def own_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server whose settings a test may change; it resets and restarts it at the end."""
    del postgres_server  # which skips where PostgreSQL is not installed
    with PostgresServer() as server:
        yield server


def test_a_prepared_database_has_no_finding_but_unlimited_retention(source: Source) -> None:
    source.run(ORDERS, "ALTER TABLE orders REPLICA IDENTITY FULL")
    source.publish("orders")
    assert source.check("public.orders").keys() == ALWAYS
    source.create_slot()
    assert source.check("public.*").keys() == ALWAYS


def test_a_first_load_by_the_engine_warns_of_columns_with_dates(source: Source) -> None:
    source.run(
        "CREATE DOMAIN day AS date; CREATE DOMAIN birthday AS day",
        'CREATE TABLE "A b" (id int PRIMARY KEY, "D 1" date, t time, b birthday, a timestamptz[])',
        "CREATE TABLE c (id int PRIMARY KEY, ts timestamp, old date); ALTER TABLE c DROP old",
        "CREATE TABLE plain (id int PRIMARY KEY, t time)",
    )
    source.publish('"A b"', "c", "plain")
    finding = source.check("public.*", is_engine_load=True)["inexact_first_load"]
    assert finding.severity == "warning"
    assert finding.about == 'tables public."A b", public.c'
    assert '(public."A b".D 1, public."A b".b, public."A b".a and 1 more)' in finding.problem
    assert "inexact_first_load" not in source.check("public.plain", is_engine_load=True)
    assert "inexact_first_load" not in source.check("public.*")


# -- tables

REJECTED = psycopg.errors.ObjectNotInPrerequisiteState


KEYLESS = "CREATE TABLE t (id int NOT NULL, note text)"
KEYED = "CREATE TABLE t (id int PRIMARY KEY, note text)"
INDEX = "CREATE UNIQUE INDEX t_id ON t (id)"


@pytest.mark.parametrize(
    ("code", "statements"),
    [
        ("no_key", ["CREATE TABLE t (id int, note text)"]),
        ("no_key", [KEYLESS, INDEX]),
        ("no_key", [KEYLESS, f"{INDEX} WHERE id > 0"]),
        ("deferrable", ["CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, note text)"]),
        ("nothing", [KEYED, "ALTER TABLE t REPLICA IDENTITY NOTHING"]),
        (
            "index_missing",
            [KEYLESS, INDEX, "ALTER TABLE t REPLICA IDENTITY USING INDEX t_id", "DROP INDEX t_id"],
        ),
        (
            "no_key",
            [
                "CREATE TABLE t (id int, note text) PARTITION BY RANGE (id)",
                "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
                "ALTER TABLE t REPLICA IDENTITY FULL",
            ],
        ),
    ],
)
def test_a_table_without_replica_identity_rejects_updates_until_it_is_mended(
    source: Source, code: str, statements: list[str]
) -> None:
    source.run(*statements, "INSERT INTO t VALUES (1, 'a')")
    source.publish("t")
    findings = source.check("public.t")
    finding = findings[f"replica_identity_{code}"]
    assert finding.severity == "error"
    for statement in ("UPDATE t SET note = 'b'", "DELETE FROM t"):
        with pytest.raises(REJECTED):
            source.run(statement)
    source.mend(finding)
    assert not any("identity" in left for left in source.check("public.t"))
    source.run("UPDATE t SET note = 'b'", "DELETE FROM t")


def test_deletes_lack_a_key_that_is_not_in_the_index_of_the_identity(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
        "INSERT INTO t VALUES (47114711, 'a'), (47124712, 'b')",
    )
    source.publish("t")
    source.create_slot()
    finding = source.check("public.t")["replica_identity_index_without_key"]
    source.run("DELETE FROM t WHERE id = 47114711")
    assert b"47114711" not in source.log()
    source.mend(finding)
    assert "replica_identity_index_without_key" not in source.check("public.t")
    source.run("DELETE FROM t WHERE id = 47124712")
    assert b"47124712" in source.log()


def test_updates_lack_unchanged_large_values_until_the_identity_is_full(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, n int, body text)",
        "ALTER TABLE t ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO t VALUES (1, 0, repeat('largevalue', 1000))",
    )
    source.publish("t")
    source.create_slot()
    finding = source.check("public.t")["unchanged_large_values"]
    assert finding.severity == "warning"
    source.run("UPDATE t SET n = 1")
    assert b"largevalue" not in source.log()
    source.mend(finding)
    assert "unchanged_large_values" not in source.check("public.t")
    source.run("UPDATE t SET n = 2")
    assert b"largevalue" in source.log()


def test_partitions_need_the_full_identity_for_large_values(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text) PARTITION BY RANGE (id)",
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    )
    source.publish("t")
    finding = source.check("public.t")["unchanged_large_values"]
    assert [statement.split()[2] for statement in finding.statements] == [
        '"public"."t"',
        '"public"."t_1"',
    ]
    source.mend(finding)
    assert source.check("public.t").keys() == ALWAYS | {"partitions"}


def test_a_table_without_any_key_is_a_warning(source: Source) -> None:
    source.run("CREATE TABLE t (id int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    source.publish("t")
    findings = source.check("public.t")
    assert findings.keys() - ALWAYS == {"no_key"}
    assert findings["no_key"].severity == "warning"
    source.run("ALTER TABLE t ADD PRIMARY KEY (id)")
    assert source.check("public.t").keys() == ALWAYS


def test_unlogged_tables_are_a_warning_of_a_wildcard_and_an_error_of_a_name(
    source: Source,
) -> None:
    source.run("CREATE UNLOGGED TABLE t (id int PRIMARY KEY)")
    assert source.check("public.*")["unlogged"].severity == "warning"
    finding = source.check("public.t")["unlogged"]
    assert finding.severity == "error"
    source.mend(finding)
    assert "unlogged" not in source.check("public.t")


def test_relations_without_changes_are_rejected_by_name_and_skipped_by_wildcards(
    source: Source,
) -> None:
    source.run(
        ORDERS,
        "CREATE VIEW v AS SELECT * FROM orders",
        "CREATE MATERIALIZED VIEW m AS SELECT * FROM orders",
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE FOREIGN TABLE f (id int) SERVER s",
    )
    source.publish("orders")
    assert "no_base_table" not in source.check("public.*")
    for name, kind in (("v", "view"), ("m", "materialized view"), ("f", "foreign table")):
        finding = source.check(f"public.{name}")["no_base_table"]
        assert finding.problem == f"it is a {kind}"
    with source.server.connect(source.database) as connection:
        connection.execute("CREATE TEMPORARY TABLE temp_orders (id int)")
        (schema,) = connection.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchone()
        finding = source.check(f"{schema}.temp_orders")["no_base_table"]
        assert finding.problem == "it is a temporary table"
        assert "no_table" in source.check(f"{schema}.temp_*")


def test_a_name_without_a_table_gets_the_nearest_name(source: Source) -> None:
    source.run('CREATE TABLE "Orders" (id int PRIMARY KEY)')
    finding = source.check("public.orders")["no_table"]
    assert finding.advice == 'did you mean public."Orders"?'
    assert "no_table" not in source.check('public."Orders"')
    assert source.check("public.zzz")["no_table"].severity == "error"


def test_inherited_rows_are_lost_unless_their_tables_are_captured(source: Source) -> None:
    source.run(ORDERS, "CREATE TABLE orders_eu (PRIMARY KEY (id)) INHERITS (orders)")
    source.publish("ONLY orders")
    source.create_slot()
    assert source.check("public.orders")["inherited_tables"].severity == "error"
    source.run("INSERT INTO orders_eu VALUES (1, 'inherited')")
    assert b"inherited" not in source.log()
    findings = source.check("public.orders", "public.orders_eu")
    assert findings["inherited_tables"].severity == "warning"
    source.mend(findings["publication_lacks_table"])
    source.run("INSERT INTO orders_eu VALUES (2, 'inherited')")
    assert b"inherited" in source.log()


def test_unlogged_partitions_are_found(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    )
    finding = source.check("public.t")["unlogged_partitions"]
    source.mend(finding)
    assert "unlogged_partitions" not in source.check("public.t")


# -- privileges


def test_missing_privileges_are_found_and_granted(source: Source) -> None:
    source.run(
        'CREATE SCHEMA "Sales ""EU"""', 'CREATE TABLE "Sales ""EU""".orders (id int PRIMARY KEY)'
    )
    source.publish('"Sales ""EU""".orders')
    pattern = '"Sales ""EU""".*'
    findings = source.check(pattern)
    assert findings.keys() - ALWAYS == {"usage_privilege"}
    source.mend(findings["usage_privilege"])
    findings = source.check(pattern)
    assert findings.keys() - ALWAYS == {"select_privilege"}
    source.mend(findings["select_privilege"])
    assert source.check(pattern).keys() == ALWAYS


def test_row_level_security_hides_rows_of_a_snapshot(source: Source) -> None:
    source.run(
        ORDERS,
        "ALTER TABLE orders ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY few ON orders USING (id = 0)",
        "INSERT INTO orders VALUES (1)",
    )
    source.publish("orders")
    finding = source.check("public.orders")["row_security"]
    count = "SELECT count(*) FROM public.orders"
    with connect(source.login) as connection:
        assert connection.execute(count).fetchone() == (0,)
    source.mend(finding)
    assert "row_security" not in source.check("public.orders")
    with connect(source.login) as connection:
        assert connection.execute(count).fetchone() == (1,)


def test_a_missing_replication_privilege_is_found_and_granted(source: Source) -> None:
    source.run(f'ALTER ROLE "{source.user}" NOREPLICATION')
    with pytest.raises(ConfigError, match="no privilege for replication"):
        connect(source.login, is_replication=True)
    finding = source.check()["replication_privilege"]
    source.mend(finding)
    assert "replication_privilege" not in source.check()
    connect(source.login, is_replication=True).close()


def test_a_replication_connection_is_tried(own_server: PostgresServer) -> None:
    with new_source(own_server) as source:
        # Amazon's role gives the privilege there, and nothing on this server
        source.run(
            "CREATE ROLE rds_replication",
            f'ALTER ROLE "{source.user}" NOREPLICATION',
            f'GRANT rds_replication TO "{source.user}"',
        )
        findings = source.check()
        assert "replication_privilege" not in findings
        assert "no privilege for replication" in findings["replication_connection"].problem
        source.run(f'ALTER ROLE "{source.user}" REPLICATION')
        assert "replication_connection" not in source.check()
        source.run("DROP ROLE rds_replication")


# -- the publication


def test_a_missing_publication_is_created_by_its_statement(source: Source) -> None:
    name = HOSTILE.replace('"', '""')
    source.run(ORDERS, f'CREATE TABLE "{name}" (id int PRIMARY KEY)')
    finding = source.check()["publication_missing"]
    assert finding.severity == "error"  # the reader does not own the tables
    source.mend(finding)
    assert "publication_missing" not in source.check()
    source.create_slot()
    source.run(f'INSERT INTO "{name}" VALUES (4711)')
    assert b"4711" in source.log()


def test_a_slot_from_before_its_publication_is_created_again(source: Source) -> None:
    source.run(ORDERS)
    source.create_slot()
    source.run("INSERT INTO orders VALUES (1)")
    finding = source.check()["publication_missing"]
    assert "fails at changes from before the publication" in finding.consequence
    source.run(finding.statements[0])
    with pytest.raises(psycopg.errors.UndefinedObject):
        source.log()
    source.run(*finding.statements[1:])
    assert "publication_missing" not in source.check()
    source.run("INSERT INTO orders VALUES (4711)")
    assert b"4711" in source.log()


def test_a_publication_without_a_table_loses_its_changes(source: Source) -> None:
    source.run(ORDERS, "CREATE TABLE items (id int PRIMARY KEY)")
    source.publish("orders")
    source.create_slot()
    finding = source.check()["publication_lacks_table"]
    source.run("INSERT INTO items VALUES (4711)")
    assert b"4711" not in source.log()
    source.mend(finding)
    assert "publication_lacks_table" not in source.check()
    source.run("INSERT INTO items VALUES (4712)")
    assert b"4712" in source.log()


def test_a_publication_without_truncate_loses_it(source: Source) -> None:
    source.run(ORDERS)
    source.publish("orders", options="publish = 'insert'")
    source.create_slot()
    finding = source.check()["publication_operations"]
    assert finding.problem == "update and delete and truncate not published"
    source.run("TRUNCATE orders")
    assert source.log() == b""
    source.mend(finding)
    assert "publication_operations" not in source.check()
    source.run("TRUNCATE orders")
    assert b"orders" in source.log()


def test_a_partition_loses_its_rows_without_the_log(source: Source) -> None:
    source.run(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)",
    )
    source.publish("root")
    source.create_slot()
    assert source.check("public.root")["partitions"].severity == "warning"
    source.run("INSERT INTO root VALUES (1)")
    assert source.log() != b""
    source.run("TRUNCATE leaf")
    assert b"root" not in source.log()
    source.run("INSERT INTO root VALUES (1)", "ALTER TABLE root DETACH PARTITION leaf")
    assert source.rows("SELECT * FROM root") == []


def test_partitions_keep_their_names_without_publish_via_partition_root(source: Source) -> None:
    source.run(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10)",
    )
    source.publish("root", options="publish_via_partition_root = false")
    source.create_slot()
    findings = source.check("public.root")
    assert findings.keys() - ALWAYS == {"publication_partitions", "partitions"}
    source.run("INSERT INTO root VALUES (1)")
    changes = source.log()
    assert b"leaf" in changes
    assert b"root" not in changes
    source.mend(findings["publication_partitions"])
    assert source.check("public.root").keys() == ALWAYS | {"partitions"}
    source.run("INSERT INTO root VALUES (2)")
    # the log describes the partition, too, but the insert names the table
    ((oid,),) = source.rows("SELECT 'root'::regclass::oid::int")
    assert b"I" + oid.to_bytes(4, "big") + b"N" in source.log()


def test_row_filters_and_column_lists_are_found_and_removed(source: Source) -> None:
    source.run(ORDERS, "CREATE TABLE items (id int PRIMARY KEY, price int)")
    source.publish("orders WHERE (id > 10), items (id)")
    source.create_slot()
    findings = source.check()
    assert {"publication_row_filter", "publication_columns"} <= findings.keys()
    assert findings["publication_columns"].problem.endswith("public.items.price")
    insert = "INSERT INTO orders VALUES ({}, 'filtered')", "INSERT INTO items VALUES ({}, 4711)"
    source.run(*(statement.format(1) for statement in insert))
    changes = source.log()
    assert b"filtered" not in changes
    assert b"4711" not in changes
    source.mend(findings["publication_row_filter"])
    source.mend(findings["publication_columns"])
    assert not {"publication_row_filter", "publication_columns"} & source.check().keys()
    source.run(*(statement.format(2) for statement in insert))
    changes = source.log()
    assert b"filtered" in changes
    assert b"4711" in changes


def test_generated_columns_are_not_in_the_log(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE k (id int, twice int GENERATED ALWAYS AS (id * 2) STORED, "
        "PRIMARY KEY (twice))",
    )
    source.publish("t", "k")
    source.create_slot()
    finding = source.check("public.t")["generated_columns"]
    assert finding.severity == "warning"
    assert source.check("public.k")["generated_columns"].severity == "error"
    source.run("INSERT INTO t VALUES (23552355)")
    assert b"47104710" not in source.log()
    source.run("ALTER TABLE t ALTER twice DROP EXPRESSION")
    assert "generated_columns" not in source.check("public.t")
    source.run("INSERT INTO t VALUES (23552356, 47104712)")
    assert b"47104712" in source.log()


# -- the slot


def test_a_missing_slot_is_an_error_after_the_first_run(source: Source) -> None:
    assert "slot_missing" not in source.check()
    finding = source.check(position=1)["slot_missing"]
    assert "--new-snapshot" in finding.advice
    source.create_slot()
    assert "slot_missing" not in source.check(position=1 << 63)


def test_a_slot_ahead_of_our_position_is_found(source: Source) -> None:
    source.create_slot()
    with source.server.connect(source.database) as connection:
        confirmed = slot_state(connection, source.slot).confirmed_flush_lsn
    assert "slot_ahead" not in source.check(position=confirmed)
    assert source.check(position=confirmed - 1)["slot_ahead"].severity == "error"
    source.run(ORDERS)
    source.publish("orders")
    source.run("INSERT INTO orders VALUES (1)")
    source.log()
    assert "slot_ahead" in source.check(position=confirmed)


@pytest.mark.parametrize("kind", ["plugin", "physical", "database"])
def test_a_slot_of_another_kind_is_found_and_dropped(source: Source, kind: str) -> None:
    match kind:
        case "plugin":
            source.create_slot("test_decoding")
        case "physical":
            source.run(f"SELECT pg_create_physical_replication_slot('{source.slot}')")
        case "database":
            with source.server.connect() as connection:
                connection.execute(
                    f"SELECT pg_create_logical_replication_slot('{source.slot}', 'pgoutput')"
                )
    finding = source.check()["slot_kind"]
    source.mend(finding)
    assert "slot_kind" not in source.check()


def test_a_slot_in_use_names_the_process(source: Source) -> None:
    source.run(ORDERS)
    source.publish("orders")
    source.create_slot()
    with contextlib.closing(connect(source.login, is_replication=True)) as reader:
        (pid,) = reader.execute("SELECT pg_backend_pid()").fetchone()
        reader.pgconn.send_query(
            f"START_REPLICATION SLOT {source.slot} LOGICAL 0/0 "
            f"(proto_version '1', publication_names '{PUBLICATION}')".encode()
        )
        reader.pgconn.get_result()
        finding = source.check()["slot_active"]
        assert f"process {pid} " in finding.problem
        with connect(source.login) as connection:
            with pytest.raises(ConfigError, match=f"in use by process {pid}: stop the capture"):
                drop_slot(connection, source.slot)
            source.mend(finding)
            while slot_state(connection, source.slot).is_active:
                time.sleep(0.01)
        assert "slot_active" not in source.check()


def test_the_lag_of_a_slot_is_found(source: Source) -> None:
    source.run(ORDERS)
    source.publish("orders")
    source.create_slot()
    # the server writes some kilobytes on its own: checkpoints, running transactions, other tests
    source.run(
        "INSERT INTO orders SELECT i, repeat(md5(i::text), 30) FROM generate_series(1, 8000) i"
    )
    assert "slot_lag" not in source.check()
    assert source.check(max_lag_bytes=4_000_000)["slot_lag"].severity == "warning"
    source.log()
    assert "slot_lag" not in source.check(max_lag_bytes=4_000_000)


# -- the server


def test_settings_of_a_server_are_found_and_mended(own_server: PostgresServer) -> None:
    with new_source(own_server) as source:
        finding = source.check()["unlimited_retention"]
        source.mend(finding)
        assert source.check().keys() <= {"no_table"}

    for setting, value, code in (
        ("wal_level", "replica", "wal_level"),
        ("max_replication_slots", "0", "replication_slots"),
        ("max_wal_senders", "0", "wal_senders"),
    ):
        own_server.set(setting, value)
        own_server.restart()
        with new_source(own_server) as source:
            finding = source.check()[code]
            assert (finding.severity, finding.advice) == ("error", "restart the server")
            source.mend(finding)
            own_server.restart()
            assert code not in source.check()
        own_server.set(setting, None)


def test_a_full_server_names_its_idle_slots(own_server: PostgresServer) -> None:
    own_server.set("max_replication_slots", "1")
    own_server.restart()
    try:
        with new_source(own_server) as source:
            source.run("SELECT pg_create_physical_replication_slot('idle')")
            finding = source.check()["replication_slots"]
            assert finding.advice == "restart the server, or drop an idle slot: idle"
            source.run("SELECT pg_drop_replication_slot('idle')")
            assert "replication_slots" not in source.check()
            source.create_slot()
            assert "replication_slots" not in source.check()  # ours is the one
    finally:
        own_server.set("max_replication_slots", None)


def test_a_slot_with_a_limit_passes_from_low_headroom_to_lost(own_server: PostgresServer) -> None:
    own_server.set("max_slot_wal_keep_size", "100MB")
    own_server.set("min_wal_size", "32MB")
    with new_source(own_server, [ORDERS]) as source:
        source.publish("orders")
        source.create_slot()

        def write_log(segments: int) -> None:
            for _ in range(segments):
                source.run("SELECT pg_logical_emit_message(false, 'a', 'b'), pg_switch_wal()")

        assert not {"unlimited_retention", "slot_headroom"} & source.check().keys()
        write_log(6)
        finding = source.check()["slot_headroom"]
        assert "until the slot may be lost" in finding.problem
        source.mend(finding)
        assert "slot_headroom" not in source.check()

        own_server.set("max_slot_wal_keep_size", "20MB")
        finding = source.check()["slot_headroom"]
        assert finding.problem == "the slot is over its limit"
        source.run("CHECKPOINT")
        findings = source.check()
        assert "slot_headroom" not in findings
        finding = findings["slot_lost"]
        assert finding.severity == "error"
        assert "--new-snapshot" in finding.advice
    own_server.set("max_slot_wal_keep_size", None)


def test_a_standby_is_rejected(own_server: PostgresServer) -> None:
    with new_source(own_server) as source:
        own_server.stop()
        signal = own_server.folder / "data" / "standby.signal"
        signal.touch()
        try:
            own_server.start()
            assert source.check().keys() == {"standby"}
        finally:
            own_server.stop()
            signal.unlink()
            own_server.start()
        assert "standby" not in source.check()


def test_a_database_without_encoding_is_found(postgres_server: PostgresServer) -> None:
    with postgres_server.connect() as connection:
        connection.execute(
            "CREATE DATABASE raw ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' "
            "TEMPLATE template0"
        )
        try:
            login = PostgresConnection(
                **postgres_server.login_of("raw"),
            )
            findings = check_server(login, tables=["*.*"], publication="p", slot="s")
            assert "encoding" in {finding.defect for finding in findings}
        finally:
            connection.execute("DROP DATABASE raw WITH (FORCE)")


def test_a_lost_connection_is_unreachable(own_server: PostgresServer) -> None:
    login = PostgresConnection(
        **own_server.login_of("postgres"),
    )
    with connect(login) as connection:
        assert current_lsn(connection) > 0
        own_server.kill()
        with pytest.raises(UnreachableError, match="the connection to PostgreSQL is lost"):
            current_lsn(connection)
        with pytest.raises(UnreachableError, match="is not reachable"):
            connect(login)
        own_server.restart()


def test_a_server_whose_log_ends_before_the_captured_position_was_restored(source: Source) -> None:
    source.run(ORDERS)
    source.publish("orders")
    source.create_slot()
    with connect(source.login) as connection:
        end = current_lsn(connection)
    assert "position_ahead" not in source.check(position=end)
    finding = source.check(position=end + (1 << 30))["position_ahead"]
    assert (finding.severity, "--new-snapshot" in finding.advice) == ("error", True)
