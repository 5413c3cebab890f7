# SPDX-License-Identifier: Apache-2.0
"""Each defect of a real MariaDB is found, and its statements mend it; logins, markers, positions.

MariaDB stands for MySQL. What a finding says of lost changes is read from the log itself.
"""

import contextlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mariadb_server import MariadbServer

from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql import (
    BinlogPosition,
    MysqlConnection,
    begin_snapshot,
    check_server,
    connect,
    create_marker_table,
    current_position,
    emit_marker,
    list_tables,
    server_identity,
)
from changelane.capture.mysql.connection import read_rows
from changelane.capture.mysql.position import log_files
from changelane.capture.products import captured_server_of
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.mysql_source import MariadbSource

READER = "rea`der@home"
PASSWORD = "it's the reader's \\ ü"
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"
ALWAYS = {"retention", "time_zones"}
"""The findings about the shared server."""


class Source:
    """A database and the login of a user with the privileges of a capture."""

    def __init__(self, server: MariadbServer, database: str) -> None:
        self.server = server
        self.database = database
        self.account = f"`{READER.replace('`', '``')}`@`%`"
        self.login = MysqlConnection(
            host=server.host, port=server.port, user=READER, password=PASSWORD
        )

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements with all privileges."""
        return self.server.run(*statements, database=self.database)

    def check(self, *patterns: str, **options: Any) -> dict[str, Finding]:
        """The findings by their defects."""
        tables = patterns or [f"{self.database}.*"]
        findings = check_server(self.login, tables=tables, **options)
        by_defect = {finding.defect: finding for finding in findings}
        assert len(by_defect) == len(findings), [finding.text() for finding in findings]
        return by_defect

    def mend(self, finding: Finding) -> None:
        assert finding.statements, finding.text()
        self.run(*finding.statements)

    def events(self, *statements: str) -> str:
        """The types of the log's events of some statements."""
        with contextlib.closing(self.server.connect(self.database)) as connection:
            start = current_position(connection)
            for statement in statements:
                read_rows(connection, statement)
            rows = read_rows(
                connection, f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}"
            )
        return " ".join(row[2] for row in rows)


@contextlib.contextmanager
def new_source(server: MariadbServer) -> Iterator[Source]:
    with server.new_database("shop") as database:
        source = Source(server, database)
        password = PASSWORD.replace("\\", "\\\\").replace("'", "''")
        source.run(
            f"CREATE USER {source.account} IDENTIFIED BY '{password}'",
            "GRANT RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, BINLOG MONITOR, "
            f"REPLICATION MASTER ADMIN, SLAVE MONITOR ON *.* TO {source.account}",
            f"GRANT SELECT ON `{database}`.* TO {source.account}",
        )
        try:
            yield source
        finally:
            if server.is_up:
                source.run(f"DROP USER {source.account}")


@pytest.fixture
def source(mariadb_server: MariadbServer) -> Iterator[Source]:
    with new_source(mariadb_server) as source:
        yield source


@pytest.fixture(scope="module")
def own_server(mariadb_server: MariadbServer) -> Iterator[MariadbServer]:
    """A server whose settings a test may change; it resets them at the end."""
    del mariadb_server  # which skips where MariaDB is not installed
    with MariadbServer() as server:
        yield server


def test_a_prepared_server_has_no_finding_about_its_log(source: Source) -> None:
    source.run(ORDERS)
    assert source.check().keys() == ALWAYS


def test_a_first_load_by_the_engine_warns_of_columns_with_floats(source: Source) -> None:
    source.run(
        "CREATE TABLE a (id int PRIMARY KEY, f float, `g 1` float(9,4) unsigned, d double)",
        "CREATE TABLE b (id int PRIMARY KEY, d double)",
    )
    finding = source.check(is_engine_load=True)["inexact_first_load"]
    assert finding.about == f"table {source.database}.a"
    names = f"({source.database}.a.f, {source.database}.a.g 1)"
    assert finding.problem == f"snapshot: engine rounds FLOAT to six digits {names}"
    assert finding.severity == "warning"
    assert "inexact_first_load" not in source.check(f"{source.database}.b", is_engine_load=True)
    assert "inexact_first_load" not in source.check()


# -- settings


@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("binlog_format", "STATEMENT", "error"),
        ("binlog_format", "MIXED", "error"),
        ("binlog_row_image", "MINIMAL", "error"),
        ("binlog_row_image", "NOBLOB", "error"),
        ("binlog_row_metadata", "MINIMAL", "warning"),
    ],
)
def test_a_setting_of_the_log_is_found_and_mended(
    source: Source, setting: str, value: str, severity: str
) -> None:
    source.run(ORDERS)
    (before,) = source.run(f"SELECT @@global.{setting}")
    source.run(f"SET GLOBAL {setting} = '{value}'")
    try:
        finding = source.check()[setting]
        assert finding.severity == severity
        assert finding.problem == f"{setting} is {value}"
        source.mend(finding)
        assert setting not in source.check()
        assert (source.run(f"SELECT @@global.{setting}")[0]) == before
    finally:
        source.run(f"SET GLOBAL {setting} = '{before[0]}'")


def test_xa_transactions_end_before_a_first_load_by_the_engine(own_server: MariadbServer) -> None:
    """The log begins after their changes, and the rows of the first load lack them."""
    with own_server.new_database("check") as database:
        login = MysqlConnection(**own_server.login)
        tables = [f"{database}.*"]

        def defects(**options: Any) -> set[str]:
            return {f.defect for f in check_server(login, tables=tables, **options)}

        own_server.run(ORDERS, database=database)
        with own_server.connect(database) as session, session.cursor() as cursor:
            for statement in ("XA START 'a'", "INSERT INTO orders VALUES (1, '')", "XA END 'a'"):
                cursor.execute(statement)
            assert "prepared_transactions" not in defects(is_engine_load=True)
            cursor.execute("XA PREPARE 'a'")
            assert "prepared_transactions" in defects(is_engine_load=True)
            assert "prepared_transactions" not in defects()
            with contextlib.closing(connect(login)) as connection:
                position = current_position(connection)
            continued = defects(is_engine_load=True, binlog_position=position)
            assert "prepared_transactions" not in continued
            cursor.execute("XA COMMIT 'a'")
        assert "prepared_transactions" not in defects(is_engine_load=True)


def test_statements_in_the_log_have_no_rows(source: Source) -> None:
    source.run(ORDERS)
    insert = "INSERT INTO orders VALUES ({}, 'a')"
    assert "Write_rows" in source.events(insert.format(1))
    statement = "SET SESSION binlog_format = 'STATEMENT'"
    assert "Write_rows" not in source.events(statement, insert.format(2))


def test_a_strict_order_of_gtids_is_recommended(source: Source) -> None:
    source.run("SET GLOBAL gtid_strict_mode = 0")
    finding = source.check()["gtid"]
    assert finding.severity == "warning"
    source.mend(finding)
    assert "gtid" not in source.check()


def test_retention_is_neither_endless_nor_short(source: Source) -> None:
    source.run(ORDERS)
    finding = source.check()["retention"]
    assert "fills its disk" in finding.consequence
    try:
        source.mend(finding)
        assert source.check().keys() == ALWAYS - {"retention"}
        source.run("SET GLOBAL binlog_expire_logs_seconds = 3600")
        finding = source.check()["retention"]
        assert "stopped for 1.0 hours loses its position" in finding.consequence
        source.mend(finding)
        assert "retention" not in source.check()
    finally:
        source.run("SET GLOBAL binlog_expire_logs_seconds = 0")


def test_missing_time_zones_are_found_until_they_are_loaded(own_server: MariadbServer) -> None:
    with new_source(own_server) as source:
        assert "time_zones" in source.check()
        for name in ("UTC", "Etc/UTC"):
            source.server.run(
                "INSERT INTO mysql.time_zone (use_leap_seconds) VALUES ('N')",
                "INSERT INTO mysql.time_zone_transition_type (time_zone_id, transition_type_id, "
                "`offset`, is_dst, abbreviation) VALUES (LAST_INSERT_ID(), 0, 0, 0, 'UTC')",
            )
            ((zone,),) = source.server.run("SELECT max(time_zone_id) FROM mysql.time_zone")
            source.server.run(f"INSERT INTO mysql.time_zone_name VALUES ('{name}', {zone})")
    own_server.restart()
    with new_source(own_server) as source:
        assert "time_zones" not in source.check()


def test_a_server_without_a_binary_log_has_no_other_finding(own_server: MariadbServer) -> None:
    own_server.settings["log-bin"] = None
    own_server.restart()
    try:
        with new_source(own_server) as source:
            source.run(ORDERS)
            finding = source.check()["log_bin"]
            assert "restart" in finding.advice
            assert source.check().keys() == {"log_bin"}
            with (
                contextlib.closing(connect(source.login)) as connection,
                pytest.raises(ConfigError, match="no binary log"),
            ):
                current_position(connection)
    finally:
        own_server.settings["log-bin"] = "binlog"
        own_server.restart()
    with new_source(own_server) as source:
        assert "log_bin" not in source.check()


def test_filters_of_databases_are_found(own_server: MariadbServer) -> None:
    own_server.settings["binlog-ignore-db"] = "skipped"
    own_server.restart()
    try:
        with new_source(own_server) as source:
            source.run("CREATE DATABASE skipped", "CREATE TABLE skipped.t (id int PRIMARY KEY)")
            source.run(ORDERS, f"GRANT SELECT ON skipped.* TO {source.account}")
            assert "binlog_filter" not in source.check()
            assert source.check("skipped.*")["binlog_filter"].severity == "error"
            events = source.events("USE skipped", "INSERT INTO t VALUES (1)")
            assert "Write_rows" not in events
            source.run("DROP DATABASE skipped")
    finally:
        del own_server.settings["binlog-ignore-db"]
        own_server.restart()


def test_a_replica_must_log_what_it_replicates(own_server: MariadbServer) -> None:
    change = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'a', MASTER_PORT = 1"
    with new_source(own_server) as source:
        source.run(change)
        assert source.check()["replica_updates"].severity == "error"
    own_server.settings["log-slave-updates"] = "ON"
    own_server.settings["skip-slave-start"] = "ON"
    own_server.restart()
    try:
        with new_source(own_server) as source:
            assert "replica_updates" not in source.check()
            source.run("RESET SLAVE ALL")
    finally:
        del own_server.settings["log-slave-updates"], own_server.settings["skip-slave-start"]
        own_server.restart()
    with new_source(own_server) as source:
        assert "replica_updates" not in source.check()


def test_a_server_id_in_use_is_found(source: Source) -> None:
    assert "server_id_clash" not in source.check(server_ids=[9001])
    assert "4711" in source.check(server_ids=[4711])["server_id_clash"].problem
    with contextlib.closing(source.server.connect()) as replica:
        # a reader of the log registers its id: COM_REGISTER_SLAVE
        replica._execute_command(0x15, struct.pack("<I3xHII", 9001, 0, 0, 0))
        replica._read_packet()
        assert "9001" in source.check(server_ids=[9001])["server_id_clash"].problem
        assert "server_id_clash" not in source.check(server_ids=[9002])


@pytest.mark.parametrize("kind", ["equal", "shorter", "longer"])
def test_a_log_that_was_reset_is_not_the_captured_one(
    own_server: MariadbServer, tmp_path: Path, kind: str
) -> None:
    texts = {"equal": "x" * 20, "shorter": "x", "longer": "x" * 500}
    with new_source(own_server) as source:
        captured = captured_server_of(
            MariadbSource(
                host=own_server.host,
                port=own_server.port,
                database=source.database,
                user=READER,
                password=PASSWORD,
                tables=[f"{source.database}.*"],
                segments=str(tmp_path / "log"),
            )
        )

        def write(text: str, count: int = 40) -> EngineOffset:
            insert = f"INSERT INTO orders VALUES (1, '{text}') ON DUPLICATE KEY UPDATE note = ''"
            source.run("RESET MASTER", ORDERS, *[insert, "DELETE FROM orders"] * count)
            ((file, position, *_),) = source.run("SHOW MASTER STATUS")
            ((gtids,),) = source.run("SELECT @@gtid_binlog_pos")
            return {"file": file, "pos": position, "gtids": gtids}

        offset = write(texts["equal"])
        recorded = captured.origin()
        at_beginning = {**offset, "pos": 4}
        source.run("INSERT INTO orders VALUES (2, 'later')", "FLUSH BINARY LOGS")
        assert not captured.log_findings(recorded, offset)
        assert not captured.log_findings(recorded, at_beginning)
        old = msgspec.json.decode(
            b'{"server":"","database":"","identity":"","tables":{}}', type=LogOrigin
        )
        assert not captured.log_findings(old, offset), "a log of an earlier version has no mark"
        deleted: EngineOffset = {**offset, "file": "binlog.999999"}
        assert not captured.log_findings(old, deleted), "another finding is about deleted files"

        source.run("DROP TABLE orders")
        write(texts[kind], count=200)
        (finding,) = captured.log_findings(recorded, offset)
        assert finding.defect == "other_log"
        assert captured.log_findings(recorded, at_beginning) == [
            msgspec.structs.replace(finding, about=f"position {offset['file']}:4")
        ]
        if kind != "equal":
            assert captured.log_findings(old, offset) == [finding], "GTIDs show it, too"


# -- privileges


def test_missing_privileges_are_found_and_granted(source: Source) -> None:
    source.run(
        ORDERS,
        f"REVOKE ALL ON *.* FROM {source.account}",
        f"GRANT REPLICATION MASTER ADMIN, SLAVE MONITOR ON *.* TO {source.account}",
    )
    findings = source.check()
    assert findings["replication_privilege"].severity == "error"
    assert findings["replication_privilege"].problem.endswith("REPLICATION SLAVE, BINLOG MONITOR")
    assert findings["snapshot_privilege"].severity == "warning"
    source.mend(findings["replication_privilege"])
    source.mend(findings["snapshot_privilege"])
    assert source.check().keys() == ALWAYS


def test_privileges_of_an_active_role_count(source: Source) -> None:
    role = f"role_{source.database}"
    source.run(
        ORDERS,
        f"CREATE ROLE {role}",
        f"GRANT RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, BINLOG MONITOR ON *.* "
        f"TO {role}",
        f"REVOKE ALL ON *.* FROM {source.account}",
        f"GRANT {role} TO {source.account}",
    )
    assert "replication_privilege" in source.check()
    source.run(f"SET DEFAULT ROLE {role} FOR {source.account}")
    assert source.check().keys() == ALWAYS
    source.run(f"DROP ROLE {role}")


def test_a_table_that_cannot_be_read_is_found_and_granted(source: Source) -> None:
    source.run(
        "CREATE TABLE `or``der's %s` (id int PRIMARY KEY, secret int)",
        f"REVOKE SELECT ON `{source.database}`.* FROM {source.account}",
    )
    assert source.check()["no_table"].advice.startswith("create it, grant SELECT")
    source.run(f"GRANT SELECT (id) ON `or``der's %s` TO {source.account}")
    finding = source.check()["select_privilege"]
    source.mend(finding)
    assert source.check().keys() == ALWAYS


# -- tables


def test_a_table_without_a_key_is_a_warning(source: Source) -> None:
    source.run("CREATE TABLE t (id int, UNIQUE (id))")
    assert source.check()["no_key"].severity == "warning"
    source.run("ALTER TABLE t MODIFY id int NOT NULL")
    assert "no_key" not in source.check()


def test_changes_that_foreign_keys_make_are_not_in_the_log(source: Source) -> None:
    source.run(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, parent int,"
        " FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (1, 1)",
    )
    finding = source.check()["cascades"]
    assert (finding.severity, finding.about) == ("warning", f"table {source.database}.child")
    assert source.events("DELETE FROM parent").count("Delete_rows") == 1
    assert source.run("SELECT * FROM child") == []
    source.run(
        "DROP TABLE child",
        "CREATE TABLE child (id int PRIMARY KEY, parent int,"
        " FOREIGN KEY (parent) REFERENCES parent (id))",
    )
    assert "cascades" not in source.check()


def test_a_partition_loses_its_rows_without_the_log(source: Source) -> None:
    source.run(
        "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 1",
        "INSERT INTO t VALUES (1)",
    )
    assert source.check()["partitions"].severity == "warning"
    assert "Delete_rows" not in source.events("ALTER TABLE t TRUNCATE PARTITION p0")
    assert source.run("SELECT * FROM t") == []


@pytest.mark.parametrize("column", ["inet6", "inet4", "varchar(10) COMPRESSED"])
def test_a_type_that_debezium_cannot_parse_is_found(source: Source, column: str) -> None:
    source.run(f"CREATE TABLE `other%s` (id int PRIMARY KEY, b {column})", ORDERS)
    finding = source.check(f"{source.database}.orders")["unknown_type"]
    assert finding.about == f"table {source.database}.`other%s`"
    source.run("ALTER TABLE `other%s` MODIFY b varchar(39)")
    assert "unknown_type" not in source.check(f"{source.database}.orders")


def test_an_engine_without_transactions_is_found_and_changed(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY) ENGINE = MyISAM")
    finding = source.check()["engine"]
    assert "MyISAM" in finding.problem
    source.mend(finding)
    assert "engine" not in source.check()


def test_a_system_versioned_table_has_no_deletes_in_the_log(source: Source) -> None:
    source.run("CREATE TABLE t (id int PRIMARY KEY) WITH SYSTEM VERSIONING")
    assert source.check()["system_versioned"].severity == "error"
    insert_delete = "INSERT INTO t VALUES (1)", "DELETE FROM t"
    assert "Delete_rows" not in source.events(*insert_delete)
    source.run("ALTER TABLE t DROP SYSTEM VERSIONING")
    assert "system_versioned" not in source.check()
    assert "Delete_rows" in source.events(*insert_delete)


def test_relations_without_changes_are_rejected_by_name_and_skipped_by_wildcards(
    source: Source,
) -> None:
    source.run(
        ORDERS,
        "CREATE VIEW v AS SELECT * FROM orders",
        "CREATE SEQUENCE s",
    )
    assert source.check().keys() == ALWAYS
    for name, kind in (("v", "it is a view"), ("s", "it is a sequence")):
        finding = source.check(f"{source.database}.{name}")["no_base_table"]
        assert finding.problem == kind


def test_hostile_names_are_listed_exactly(source: Source) -> None:
    names = ["a `b", "A.B", "with space", "Übergröße", "*", "a?c", "select", "new\nline", "'", "%s"]
    for name in names:
        source.run(f"CREATE TABLE `{name.replace('`', '``')}` (id int PRIMARY KEY)")
    with contextlib.closing(connect(source.login)) as connection:
        tables = list_tables(connection, [f"{source.database}.*"])
        assert sorted(str(table.name) for table in tables) == sorted(names)
        for name in names:
            quoted = f"{source.database}.`{name.replace('`', '``')}`"
            (table,) = list_tables(connection, [quoted])
            assert (table.database, table.schema, table.name) == (source.database, None, name)
        with pytest.raises(ConfigError, match=r"is not database\.table"):
            list_tables(connection, ["orders"])
        assert list_tables(connection, [f"{source.database}.WITH*"]) == []


def test_a_server_that_ignores_case_matches_any_case(own_server: MariadbServer) -> None:
    own_server.settings["lower-case-table-names"] = "1"
    own_server.restart()
    try:
        with new_source(own_server) as source:
            source.run("CREATE TABLE Orders (id int PRIMARY KEY)")
            pattern = f"{source.database}.ORDERS"
            assert "no_table" not in source.check(pattern)
            with contextlib.closing(connect(source.login)) as connection:
                assert [table.name for table in list_tables(connection, [pattern])] == ["orders"]
    finally:
        del own_server.settings["lower-case-table-names"]
        own_server.restart()


# -- positions and markers


def test_positions_grow_and_a_deleted_file_is_found(own_server: MariadbServer) -> None:
    with new_source(own_server) as source, contextlib.closing(connect(source.login)) as connection:
        source.run(ORDERS)
        position = current_position(connection)
        assert position.gtid.startswith("1-4711-")
        source.run("INSERT INTO orders VALUES (1, repeat('a', 10000))", "FLUSH BINARY LOGS")
        later = current_position(connection)
        assert later.order > position.order
        assert "position_lag" not in source.check(binlog_position=position)
        finding = source.check(binlog_position=position, max_lag_bytes=10_000)["position_lag"]
        assert finding.severity == "warning"

        while len(log_files(connection)) > 1:  # the server may need the last file for a moment
            source.run(f"PURGE BINARY LOGS TO '{later.file}'")
            time.sleep(0.01)
        assert source.check(binlog_position=position)["position_purged"].severity == "error"
        assert not [d for d in source.check(binlog_position=later) if d.startswith("position")]

        source.run("RESET MASTER")
        assert source.check(binlog_position=later)["position_ahead"].severity == "error"
        current = current_position(connection)
        beyond = BinlogPosition(current.file, current.offset + 1)
        assert "position_ahead" in source.check(binlog_position=beyond)
        assert "position_ahead" not in source.check(binlog_position=current)


def test_a_snapshot_has_an_exact_position(source: Source) -> None:
    source.run(ORDERS, "INSERT INTO orders VALUES (1, 'a')")
    with contextlib.closing(connect(source.login)) as connection:
        position = begin_snapshot(connection)
        assert position.order == current_position(connection).order
        source.run("INSERT INTO orders VALUES (2, 'b')")
        rows = read_rows(connection, f"SELECT id FROM `{source.database}`.orders")
        assert rows == [(1,)]
        assert position.order < current_position(connection).order
        connection.rollback()


def test_a_marker_replaces_the_last_one_of_its_writer(source: Source) -> None:
    name = "mar`ker %s"
    table = "`" + name.replace("`", "``") + "`"
    with contextlib.closing(connect(source.login)) as connection:
        with pytest.raises(ConfigError, match=r"lacks a privilege.*as another user: CREATE TABLE"):
            create_marker_table(connection, source.database, name)
        source.run(f"GRANT CREATE, INSERT, UPDATE ON `{source.database}`.* TO {source.account}")
        create_marker_table(connection, source.database, name)
        create_marker_table(connection, source.database, name)
        before = current_position(connection)
        first = emit_marker(connection, source.database, name, writer="shop", text="ü' %s")
        assert current_position(connection).order > before.order
        second = emit_marker(connection, source.database, name, writer="shop")
        other = emit_marker(connection, source.database, name, writer="Shop")
        rows = source.run(f"SELECT writer, token, content FROM {table} ORDER BY writer")
        assert rows == [("Shop", other.token, ""), ("shop", second.token, "")]
        assert len({first.token, second.token, other.token}) == 3


def test_a_server_has_an_identity(source: Source, own_server: MariadbServer) -> None:
    with contextlib.closing(connect(source.login)) as connection:
        identity = server_identity(connection)
        assert identity == server_identity(connection)
    with new_source(own_server) as other, contextlib.closing(connect(other.login)) as connection:
        assert server_identity(connection).server_uuid != identity.server_uuid


# -- logins


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"password": "a secret"}, ConfigError, "rejects the user .* or the password: correct"),
        ({"user": "nobody"}, ConfigError, "rejects the user nobody or the password"),
        ({"port": 1}, UnreachableError, "is not reachable: check host and port"),
        ({"host": "no.such.host.invalid"}, UnreachableError, "cannot be resolved"),
        ({"ssl_mode": "required"}, ConfigError, "has no TLS, but ssl_mode: required requires it"),
        (
            {"ssl_mode": "verify_ca", "ssl_ca": "/no/such/file"},
            ConfigError,
            "ssl_ca, ssl_cert or ssl_key is not usable: No such file",
        ),
    ],
)
def test_a_rejected_login_has_a_sentence_without_the_password(
    source: Source, changes: dict[str, Any], kind: type[ConfigError], sentence: str
) -> None:
    login = {"host": source.login.host, "port": source.login.port, "user": READER}
    options = MysqlConnection(**{**login, "password": PASSWORD, **changes})
    with pytest.raises(ConfigError, match=sentence) as raised:
        connect(options)
    assert type(raised.value) is kind
    assert raised.value.__cause__ is None
    for password in (PASSWORD, "a secret"):
        assert password not in f"{raised.value} {raised.value!r} {options!r} {options}"


def test_a_lost_connection_is_unreachable(own_server: MariadbServer) -> None:
    with new_source(own_server) as source:
        connection = connect(source.login)
        own_server.kill()
        with pytest.raises(UnreachableError, match="the connection is lost"):
            current_position(connection)
        own_server.restart()


def test_tls_is_verified_against_the_authority_and_the_host(
    mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    del mariadb_server  # which skips where MariaDB is not installed
    with MariadbServer(tls="required") as server:
        root = str(server.certificate.root)
        options = MysqlConnection(**server.login, ssl_mode="verify_identity", ssl_ca=root)
        with contextlib.closing(connect(options)) as connection:
            ((_, version),) = read_rows(connection, "SHOW STATUS LIKE 'Ssl_version'")
            assert version.startswith("TLS")
        with pytest.raises(ConfigError, match="or requires TLS"):
            connect(MysqlConnection(**server.login, ssl_mode="disabled"))
        connect(MysqlConnection(**server.login)).close()
        other = tmp_path / "other.crt"
        other.write_bytes(server.certificate.certificate.read_bytes())
        with pytest.raises(ConfigError, match=r"TLS connection to .* fails: check ssl_ca"):
            connect(MysqlConnection(**server.login, ssl_mode="verify_ca", ssl_ca=str(other)))
