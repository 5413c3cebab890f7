# SPDX-License-Identifier: Apache-2.0
"""Findings about a MySQL or MariaDB server: its log, its settings, the user's privileges. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from changelane.capture.finding import Finding, shortened
from changelane.capture.mysql.position import LogFile

MIN_RETENTION_S: Final = 86_400
"""A shorter retention of the log gets a warning."""
_SUGGESTED_RETENTION_S: Final = 7 * 86_400
_PERSIST_VERSION: Final = (8, 0)
_MIN_VERSIONS: Final = {True: (10, 5), False: (8, 0)}
"""The first MariaDB and the first MySQL with complete metadata of rows in the log."""
_GRANT: Final = re.compile(r"GRANT (.+?) ON \*\.\* TO ", re.DOTALL)


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server, as far as a capture depends on it.

    Attributes:
        version: The first two numbers of the version.
        version_text: The version as the server writes it.
        variables: Global variables by name in lower case; those of other versions are missing.
        account: The quoted account of the user.
        privileges: The global privileges of the user; ``ALL PRIVILEGES`` includes the others.
        log_databases, skipped_databases: The filters of ``binlog_do_db`` and ``binlog_ignore_db``.
        log_files: The files of the log from the oldest; none if the user may not list them.
        replica_ids: The server ids of the replicas that are registered and that the user may see.
        log_readers: The user and the address of the connections that read the log and that the
            user may see; Debezium and others do not register as replicas.
        is_replica: The server itself is a replica.
        has_time_zones: The tables of named time zones are filled.
        time_s: The time of its clock, seconds since 1970-01-01 UTC.
    """

    is_mariadb: bool = True
    version: tuple[int, int] = (10, 11)
    version_text: str = "10.11.1-MariaDB"
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    account: str = "`root`@`%`"
    privileges: frozenset[str] = frozenset(("ALL PRIVILEGES",))
    log_databases: tuple[str, ...] = ()
    skipped_databases: tuple[str, ...] = ()
    log_files: tuple[LogFile, ...] = ()
    replica_ids: frozenset[int] = frozenset()
    log_readers: tuple[str, ...] = ()
    is_replica: bool = False
    has_time_zones: bool = True
    time_s: float = 0

    @property
    def product(self) -> str:
        """The name of the product."""
        return "MariaDB" if self.is_mariadb else "MySQL"

    @property
    def has_all_privileges(self) -> bool:
        """Whether the user has each global privilege."""
        return any(name.startswith("ALL PRIVILEGES") for name in self.privileges)

    @property
    def is_rds(self) -> bool:
        """Whether it is an Amazon RDS, whose settings are in a parameter group."""
        return "rdsdbbin" in self.variables.get("basedir", "")

    def setting(self, name: str, default: str = "") -> str:
        """Return a variable in upper case; the default if this version does not have it."""
        return self.variables.get(name, default).upper()

    def is_on(self, name: str) -> bool:
        """Whether a variable is on."""
        return self.setting(name) in {"ON", "1"}


def privileges_of(grants: Iterable[str]) -> frozenset[str]:
    """Return the global privileges in the lines of ``SHOW GRANTS``.

    >>> sorted(privileges_of(["GRANT SELECT, RELOAD ON *.* TO `a`@`%`", "GRANT `r` TO `a`@`%`"]))
    ['RELOAD', 'SELECT']
    """
    privileges: set[str] = set()
    for line in grants:
        if grant := _GRANT.match(line):
            privileges.update(name.strip() for name in grant[1].split(","))
    return frozenset(privileges)


def server_findings(
    server: ServerState, *, databases: Collection[str], server_ids: Iterable[int] = ()
) -> Iterator[Finding]:
    """Yield findings about a server.

    Args:
        server: Its state.
        databases: The databases that are captured.
        server_ids: The ids that the capture uses as a replica.
    """
    if server.version < (oldest := _MIN_VERSIONS[server.is_mariadb]):
        yield Finding(
            severity="error",
            defect="version",
            about=server.product,
            problem=f"version {server.version_text} is not supported",
            consequence="its log lacks metadata of rows",
            advice=f"upgrade to version {oldest[0]}.{oldest[1]} or later",
        )
    if not server.is_on("log_bin"):
        advice = "set log_bin and server_id in the server's configuration, and restart it"
        yield Finding(
            severity="error",
            defect="log_bin",
            about=server.product,
            problem="the binary log is off",
            consequence="no change can be captured",
            advice="switch automated backups on" if server.is_rds else advice,
        )
        return
    yield from _format_findings(server)
    yield from _replication_findings(server, server_ids)
    yield from _filter_findings(server, databases)
    yield from _retention_findings(server)
    yield from _privilege_findings(server)
    yield from _name_findings(server)


def _setting_finding(
    server: ServerState,
    defect: str,
    *,
    setting: str,
    value: str,
    consequence: str,
    is_error: bool = True,
    advice: str = "",
) -> Finding:
    """Return the finding about a setting that can be changed at run time."""
    number_or_text = value if value.isdecimal() else f"'{value}'"
    is_persistent = not server.is_mariadb and server.version >= _PERSIST_VERSION
    statement = f"SET {'PERSIST' if is_persistent else 'GLOBAL'} {setting} = {number_or_text}"
    notes = [advice] if advice else []
    if server.is_rds:
        notes.append(f"set {setting} = {value} in the parameter group")
    elif not is_persistent:
        notes.append("the same in the server's configuration")
    current = server.variables.get(setting, "")
    return Finding(
        severity="error" if is_error else "warning",
        defect=defect,
        about=server.product,
        problem=f"{setting} is {current}" if current else f"{setting} is not set",
        consequence=consequence,
        statements=() if server.is_rds else (statement,),
        advice="; ".join(notes),
    )


def _format_findings(server: ServerState) -> Iterator[Finding]:
    if server.setting("binlog_format", "ROW") != "ROW":
        yield _setting_finding(
            server,
            "binlog_format",
            setting="binlog_format",
            value="ROW",
            consequence="the log has statements instead of rows: changes are lost",
            advice="connect applications again, which keep the old format",
        )
    if server.setting("binlog_row_image", "FULL") != "FULL":
        yield _setting_finding(
            server,
            "binlog_row_image",
            setting="binlog_row_image",
            value="FULL",
            consequence="updates lack columns, and deletes have keys only",
            advice="connect applications again, which keep the old image",
        )
    if "PARTIAL_JSON" in server.setting("binlog_row_value_options"):
        yield _setting_finding(
            server,
            "binlog_row_value_options",
            setting="binlog_row_value_options",
            value="",
            consequence="updates of JSON columns are lost",
        )
    if server.setting("binlog_row_metadata", "FULL") != "FULL":
        yield _setting_finding(
            server,
            "binlog_row_metadata",
            setting="binlog_row_metadata",
            value="FULL",
            consequence="the log has no names of columns: a lost schema history cannot be rebuilt",
            is_error=False,
        )


def _replication_findings(server: ServerState, server_ids: Iterable[int]) -> Iterator[Finding]:
    own_id = server.setting("server_id", "1")
    if own_id == "0":
        yield _setting_finding(
            server,
            "server_id",
            setting="server_id",
            value="1",
            consequence="the server rejects readers of its log",
        )
    capture_ids = set(server_ids)
    if clashes := sorted({int(own_id), *server.replica_ids} & capture_ids):
        yield Finding(
            severity="error",
            defect="server_id_clash",
            about=server.product,
            problem=f"the server id {clashes[0]} of the capture is in use",
            consequence="the server disconnects one of the two readers again and again",
            advice="choose a number that no server and no other reader has",
        )
    elif capture_ids:
        yield from _reader_findings(server)
    if server.is_replica and not _logs_replicated_changes(server):
        yield Finding(
            severity="error",
            defect="replica_updates",
            about=server.product,
            problem="the server is a replica, and log_slave_updates is off",
            consequence="replicated changes are not in its log",
            advice="set log_slave_updates in its configuration and restart it, or read the primary",
        )
    yield from _gtid_findings(server)


def prepared_findings(prepared: Collection[str]) -> Iterator[Finding]:
    """Yield the finding about XA transactions that are prepared before a first load.

    Args:
        prepared: The transactions.
    """
    if prepared:
        yield Finding(
            severity="error",
            defect="prepared_transactions",
            about="XA transactions",
            problem=f"{len(prepared)} of the server are prepared",
            consequence="their changes are in the log before the first load, and never in its rows",
            advice="commit them or roll them back: XA RECOVER lists them",
        )


def _reader_findings(server: ServerState) -> Iterator[Finding]:
    """Yield the finding about readers of the log whose server ids are unknown."""
    if len(server.log_readers) > len(server.replica_ids):
        shown = shortened(server.log_readers)
        yield Finding(
            severity="warning",
            defect="log_readers",
            about=server.product,
            problem=f"others read its log, and it does not show their server ids: {shown}",
            consequence="one with the server id of the capture ends the capture, or is ended",
            advice="compare server_id; ignore this if it is the capture of this pipeline",
        )
    elif not server.has_all_privileges and "PROCESS" not in server.privileges:
        yield Finding(
            severity="warning",
            defect="process_privilege",
            about=f"user {server.account}",
            problem="it may not see the connections of other users that read the log",
            consequence="a server id that is in use is found only when the capture ends",
            statements=(f"GRANT PROCESS ON *.* TO {server.account}",),
        )


def _logs_replicated_changes(server: ServerState) -> bool:
    return server.is_on("log_slave_updates") or server.is_on("log_replica_updates")


def _gtid_findings(server: ServerState) -> Iterator[Finding]:
    if server.is_mariadb:
        if not server.is_on("gtid_strict_mode"):
            yield _setting_finding(
                server,
                "gtid",
                setting="gtid_strict_mode",
                value="1",
                consequence="after a failover, equal positions may have different changes",
                is_error=False,
            )
    elif server.setting("gtid_mode") != "ON":
        yield Finding(
            severity="warning",
            defect="gtid",
            about=server.product,
            problem=f"gtid_mode is {server.setting('gtid_mode') or 'not set'}",
            consequence="after a failover, the position is unknown on the new primary",
            statements=(
                "SET PERSIST enforce_gtid_consistency = ON",
                "SET PERSIST gtid_mode = OFF_PERMISSIVE",
                "SET PERSIST gtid_mode = ON_PERMISSIVE",
                "SET PERSIST gtid_mode = ON",
            ),
            advice="each step on all servers before the next one",
        )


def _filter_findings(server: ServerState, databases: Collection[str]) -> Iterator[Finding]:
    lost = [
        database
        for database in sorted(databases)
        if database in server.skipped_databases
        or (server.log_databases and database not in server.log_databases)
    ]
    if lost:
        yield Finding(
            severity="error",
            defect="binlog_filter",
            about=server.product,
            problem=f"binlog_do_db or binlog_ignore_db excludes {shortened(lost)}",
            consequence="changes of these databases are lost",
            advice="remove the option from the server's configuration, and restart it",
        )


def retention_s(server: ServerState) -> float:
    """Return the seconds after which the server deletes files of its log; 0 for never."""
    if server.setting("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return 0
    seconds = float(server.variables.get("binlog_expire_logs_seconds") or 0)
    return seconds or float(server.variables.get("expire_logs_days") or 0) * 86_400


def _retention_findings(server: ServerState) -> Iterator[Finding]:
    seconds = retention_s(server)
    if server.is_rds:
        hours = _SUGGESTED_RETENTION_S // 3600
        yield Finding(
            severity="warning",
            defect="retention",
            about=server.product,
            problem="Amazon deletes the log as soon as its own replicas have it",
            consequence="a capture that is stopped loses its position",
            statements=(f"CALL mysql.rds_set_configuration('binlog retention hours', {hours})",),
            advice="ignore this if it is done",
        )
        return
    if seconds >= MIN_RETENTION_S:
        return
    if seconds:
        consequence = f"a capture that is stopped for {seconds / 3600:.1f} hours loses its position"
    else:
        consequence = "the server never deletes its log, which fills its disk"
    setting = "binlog_expire_logs_seconds"
    if server.is_mariadb and setting not in server.variables:  # before version 10.6
        setting, value = "expire_logs_days", str(_SUGGESTED_RETENTION_S // 86_400)
    else:
        value = str(_SUGGESTED_RETENTION_S)
    yield _setting_finding(
        server, "retention", setting=setting, value=value, consequence=consequence, is_error=False
    )


def _privilege_findings(server: ServerState) -> Iterator[Finding]:
    if server.has_all_privileges:
        return
    monitor = "BINLOG MONITOR" if server.is_mariadb else "REPLICATION CLIENT"
    reading = {
        "REPLICATION SLAVE": {"REPLICATION SLAVE", "REPLICATION REPLICA"},
        monitor: {"BINLOG MONITOR", "REPLICATION CLIENT"},
    }
    snapshot = {
        "RELOAD": {"RELOAD", "FLUSH_TABLES"},
        "LOCK TABLES": {"LOCK TABLES"},
        "SHOW DATABASES": {"SHOW DATABASES"},
    }
    for needs, severity, defect, consequence in (
        (reading, "error", "replication_privilege", "the log cannot be read"),
        (snapshot, "warning", "snapshot_privilege", "a snapshot by the engine fails"),
    ):
        missing = [name for name, names in needs.items() if not names & server.privileges]
        if missing:
            yield Finding(
                severity="error" if severity == "error" else "warning",
                defect=defect,
                about=f"user {server.account}",
                problem=f"privileges are missing: {', '.join(missing)}",
                consequence=consequence,
                statements=(f"GRANT {', '.join(missing)} ON *.* TO {server.account}",),
            )


def _name_findings(server: ServerState) -> Iterator[Finding]:
    if server.setting("lower_case_table_names", "0") == "2":
        yield Finding(
            severity="warning",
            defect="lower_case_table_names",
            about=server.product,
            problem="lower_case_table_names is 2",
            consequence="the log may have a table's name in another case than the statement",
            advice="create tables with lower-case names",
        )
    if not server.has_time_zones:
        yield Finding(
            severity="warning",
            defect="time_zones",
            about=server.product,
            problem="the tables of time zones are empty",
            consequence="a session with a named time zone fails",
            advice="mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql",
        )
