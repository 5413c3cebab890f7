# SPDX-License-Identifier: Apache-2.0
"""The implementation of each database product."""

from collections.abc import Callable

from changelane.capture.captured_experimental import CapturedExperimental
from changelane.capture.captured_server import CapturedServer
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.mysql.captured_mysql import CapturedMysql
from changelane.capture.postgres.captured_postgres import CapturedPostgres
from changelane.capture.snapshot.binlog_table import BinlogTables
from changelane.capture.snapshot.postgres_table import PostgresTables
from changelane.capture.snapshot.table_database import TableDatabase
from changelane.errors import ConfigError
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import ExperimentalSource
from changelane.pipeline.mysql_source import MysqlSource
from changelane.pipeline.postgres_source import PostgresSource


def captured_server_of(source: DatabaseSource) -> CapturedServer:
    """Return the server of a source."""
    match source:
        case PostgresSource():
            return CapturedPostgres(source)
        case MysqlSource():
            return CapturedMysql(source)
        case ExperimentalSource():
            return CapturedExperimental(source)
        case _:
            raise ConfigError(f"no capture of {source.type_name}")


def table_database_of(
    source: DatabaseSource, options: ConnectorOptions, check: Callable[[], None] = lambda: None
) -> TableDatabase:
    """Return the tables of a source for snapshots of single tables.

    Args:
        source: The database.
        options: The options of its connector.
        check: Called during waits; it raises to stop them.
    """
    match source:
        case PostgresSource():
            return PostgresTables(source, options, check)
        case MysqlSource():
            return BinlogTables(source, options)
        case _:
            raise ConfigError(f"no snapshots of {source.type_name}")
