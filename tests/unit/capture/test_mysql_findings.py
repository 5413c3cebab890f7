# SPDX-License-Identifier: Apache-2.0
"""Findings about servers that no test has: MySQL, other versions, Amazon's; names and errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.capture.finding import Finding
from changelane.capture.mysql.check import _VERSION
from changelane.capture.mysql.connection import MysqlConnection, connection_error
from changelane.capture.mysql.position import (
    BinlogPosition,
    LogFile,
    file_number,
    marker_table_statement,
)
from changelane.capture.mysql.position_findings import headroom_s, position_findings
from changelane.capture.mysql.server_findings import (
    ServerState,
    privileges_of,
    server_findings,
)
from changelane.capture.mysql.sql_text import account, identifier, shown_name
from changelane.capture.mysql.tables import (
    MysqlTable,
    parse_patterns,
    selection_findings,
    selection_of,
    table_findings,
)
from changelane.errors import ConfigError, UnreachableError

SOUND = {
    "binlog_expire_logs_seconds": "2592000",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
    "log_bin": "ON",
    "server_id": "7",
}


def mysql(*, variables: dict[str, str] | None = None, **state: Any) -> dict[str, Finding]:
    """The findings about a MySQL 8.0, changed as told."""
    server = ServerState(
        **{
            "is_mariadb": False,
            "version": (8, 0),
            "version_text": "8.0.40",
            "variables": {**SOUND, **(variables or {})},
            **state,
        }
    )
    return {finding.defect: finding for finding in server_findings(server, databases=["shop"])}


def test_a_sound_mysql_has_no_finding() -> None:
    assert not mysql()


def test_settings_of_mysql_survive_a_restart() -> None:
    finding = mysql(variables={"binlog_row_image": "MINIMAL"})["binlog_row_image"]
    assert finding.statements == ("SET PERSIST binlog_row_image = 'FULL'",)
    assert "configuration" not in finding.advice


@pytest.mark.parametrize(
    ("variables", "defect", "severity"),
    [
        ({"binlog_row_value_options": "PARTIAL_JSON"}, "binlog_row_value_options", "error"),
        ({"server_id": "0"}, "server_id", "error"),
        ({"gtid_mode": "OFF"}, "gtid", "warning"),
        ({"binlog_expire_logs_auto_purge": "OFF"}, "retention", "warning"),
        ({"lower_case_table_names": "2"}, "lower_case_table_names", "warning"),
        ({"binlog_row_image": "full_nodup"}, "binlog_row_image", "error"),
    ],
)
def test_settings_of_mysql_are_found(variables: dict[str, str], defect: str, severity: str) -> None:
    findings = mysql(variables=variables)
    assert findings.keys() == {defect}
    assert findings[defect].severity == severity


def test_gtids_are_switched_on_in_steps() -> None:
    statements = mysql(variables={"gtid_mode": "OFF"})["gtid"].statements
    assert len(statements) == 4
    assert statements[-1] == "SET PERSIST gtid_mode = ON"


def test_old_versions_are_rejected() -> None:
    assert mysql(version=(5, 7)).keys() == {"version"}
    assert mysql(is_mariadb=True, version=(10, 4))["version"].advice.startswith("upgrade to")


def test_an_old_mariadb_keeps_its_log_for_days() -> None:
    variables = {name: value for name, value in SOUND.items() if "expire" not in name}
    server = ServerState(
        version=(10, 5), variables={**variables, "gtid_strict_mode": "ON", "expire_logs_days": "0"}
    )
    (finding,) = server_findings(server, databases=[])
    assert finding.statements == ("SET GLOBAL expire_logs_days = 7",)


def test_settings_of_amazon_are_in_a_parameter_group() -> None:
    findings = mysql(variables={"basedir": "/rdsdbbin/mysql/", "binlog_format": "MIXED"})
    assert findings["binlog_format"].statements == ()
    assert "parameter group" in findings["binlog_format"].advice
    assert "rds_set_configuration" in findings["retention"].statements[0]
    findings = mysql(variables={"basedir": "/rdsdbbin/mysql/", "log_bin": "OFF"})
    assert findings["log_bin"].advice == "switch automated backups on"


def test_only_listed_databases_are_in_the_log() -> None:
    assert "binlog_filter" in mysql(log_databases=("other",))
    assert "binlog_filter" not in mysql(log_databases=("other", "shop"))
    assert "binlog_filter" in mysql(skipped_databases=("shop",))


@pytest.mark.parametrize("name", ["log_replica_updates", "log_slave_updates"])
def test_a_replica_that_logs_its_changes_is_sound(name: str) -> None:
    assert not mysql(is_replica=True, variables={name: "ON"})
    assert mysql(is_replica=True, variables={name: "OFF"}).keys() == {"replica_updates"}


def test_privileges_are_read_from_grants() -> None:
    grants = [
        "GRANT USAGE ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*SELECT'",
        "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `a`@`%`",
        "GRANT SELECT ON `x`.* TO `a`@`%`",
        "GRANT `role`@`%` TO `a`@`%`",
    ]
    privileges = privileges_of(grants)
    assert privileges == {"USAGE", "REPLICATION SLAVE", "REPLICATION CLIENT"}
    findings = mysql(privileges=privileges, account="`a`@`%`")
    assert findings.keys() == {"snapshot_privilege"}
    assert findings["snapshot_privilege"].statements == (
        "GRANT RELOAD, LOCK TABLES, SHOW DATABASES ON *.* TO `a`@`%`",
    )
    assert not mysql(privileges=privileges_of(["GRANT ALL PRIVILEGES ON *.* TO `a`@`%`"]))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("10.11.19-MariaDB-0+deb12u1-log", ("10", "11")),
        ("5.5.5-10.4.32-MariaDB", ("10", "4")),
        ("8.4.3", ("8", "4")),
        ("5.5.62-MariaDB", ("5", "5")),
    ],
)
def test_versions_are_read(text: str, version: tuple[str, str]) -> None:
    assert _VERSION.match(text).groups() == version


FILES = (LogFile("b.000009", 100), LogFile("b.1000000", 50))


@pytest.mark.parametrize(
    ("position", "defect"),
    [
        (BinlogPosition("b.000009", 100), None),
        (BinlogPosition("b.000009", 101), "position_ahead"),
        (BinlogPosition("b.999999", 4), "position_purged"),
        (BinlogPosition("b.000008", 4), "position_purged"),
        (BinlogPosition("b.1000000", 50), None),
        (BinlogPosition("b.1000001", 4), "position_ahead"),
    ],
)
def test_positions_outside_of_the_log_are_found(
    position: BinlogPosition, defect: str | None
) -> None:
    findings = position_findings(ServerState(log_files=FILES), position)
    assert [finding.defect for finding in findings] == ([defect] if defect else [])
    assert not list(position_findings(ServerState(), position))


@pytest.mark.parametrize(
    ("file", "age_s", "variables", "expected"),
    [
        ("binlog.000009", 3_000, {}, 1_000),
        ("binlog.000009", 3_001, {}, 999),
        ("binlog.000009", 9_000, {}, 0),
        ("binlog.000009", -50, {}, 4_000),  # the time of an event may be set
        ("binlog.000010", 9_000, {}, 4_000),  # the file that is written
        ("binlog.000009", 3_001, {"binlog_expire_logs_seconds": "0"}, None),
        ("binlog.000009", 3_001, {"binlog_expire_logs_auto_purge": "OFF"}, None),
        ("binlog.000009", 3_001, {"basedir": "/rdsdbbin/x"}, None),
        ("binlog.000009", None, {}, None),
    ],
)
def test_headroom_is_the_retention_without_the_age_of_the_position(
    file: str, age_s: float | None, variables: dict[str, str], expected: float | None
) -> None:
    server = ServerState(
        variables={"binlog_expire_logs_seconds": "4000"} | variables,
        log_files=(LogFile("binlog.000009", 500), LogFile("binlog.000010", 500)),
        time_s=20_000,
    )
    position = BinlogPosition(file, 4, time_s=None if age_s is None else 20_000 - age_s)
    assert headroom_s(server, position) == expected
    defects = [finding.defect for finding in position_findings(server, position)]
    assert defects == (["position_headroom"] if expected in {0, 999} else [])


@pytest.mark.parametrize("name", ["", "binlog", "binlog.", "000001"])
def test_a_file_without_a_number_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="ends with a dot and a number"):
        file_number(name)


NAMES = st.text(min_size=1).filter(lambda name: "\0" not in name)


@given(database=NAMES, name=NAMES, other=NAMES)
def test_a_shown_name_is_a_pattern_of_this_table_only(database: str, name: str, other: str) -> None:
    (pattern,) = parse_patterns([shown_name(database, name)])
    assert pattern.is_exact
    assert pattern.matches(database, name)
    assert pattern.matches(database, other) == (other == name)


@given(st.text())
def test_a_quoted_identifier_has_one_reading(name: str) -> None:
    assert identifier(name)[1:-1].replace("``", "") == name.replace("`", "")


def test_accounts_and_markers_are_quoted() -> None:
    assert account("a`b@c@10.0.0.%") == "`a``b@c`@`10.0.0.%`"
    assert "`a``b`.`c%`" in marker_table_statement("a`b", "c%")


def test_remote_tables_and_views_are_not_captured() -> None:
    tables = [
        MysqlTable(database="d", name="a"),
        MysqlTable(database="d", name="b", engine="FEDERATED"),
        MysqlTable(database="d", name="v", kind="VIEW", engine=""),
    ]
    selection = selection_of(tables, parse_patterns(["d.*", "d.b", "d.v", "d.x", "d.v*"]))
    assert [table.name for table in selection.tables] == ["a"]
    assert [table.name for table in selection.rejected] == ["b", "v"]
    assert [text for text, _ in selection.unmatched] == ["d.x", "d.v*"]
    problems = [finding.problem for finding in selection_findings(selection)]
    assert problems[2:] == ["it is of engine FEDERATED", "it is a view"]


def test_tables_of_one_defect_share_a_finding() -> None:
    tables = [MysqlTable(database="d", name=f"t{number}", has_key=False) for number in range(9)]
    (finding,) = table_findings(tables, [], "`a`@`%`")
    assert finding.about == "tables d.t0, d.t1, d.t2 and 6 more"


class Error(Exception):
    """An error with the number and the message of pymysql's."""


OPTIONS = MysqlConnection(host="db", user="reader", password="s3cret")


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (Error(1040, "Too many connections"), UnreachableError, "db:3306 has no free connection"),
        (Error(1130, "Host is not allowed"), ConfigError, "create the user for its host"),
        (Error(3159, "insecure transport"), ConfigError, "set ssl_mode: required"),
        (Error(2013, "Lost connection"), UnreachableError, "is not reachable"),
        (Error(9999, "s3cret is wrong"), ConfigError, "fails: *** is wrong"),
        (Error("s3cret"), ConfigError, "fails: ***"),
    ],
)
def test_an_error_of_a_login_gets_a_sentence(
    error: Exception, kind: type[ConfigError], sentence: str
) -> None:
    raised = connection_error(error, OPTIONS)
    assert type(raised) is kind
    assert sentence in str(raised)
    assert "s3cret" not in f"{raised} {OPTIONS!r}"


@pytest.mark.parametrize("changes", [{"host": "a,b"}, {"host": ""}, {"user": ""}, {"port": 0}])
def test_an_incomplete_login_is_rejected(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is"):
        MysqlConnection(**{"host": "db", "user": "reader", **changes})
