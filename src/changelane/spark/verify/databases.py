# SPDX-License-Identifier: Apache-2.0
"""The databases whose tables are verified, by their sources."""

from contextlib import AbstractContextManager

from changelane.errors import ConfigError
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.mysql_source import MysqlSource
from changelane.pipeline.postgres_source import PostgresSource
from changelane.spark.verify.mysql_database import open_mysql
from changelane.spark.verify.postgres_database import open_postgres
from changelane.spark.verify.source_database import SourceDatabase


def open_database(source: DatabaseSource) -> AbstractContextManager[SourceDatabase]:
    """Connect to the database of a source.

    Raises:
        ConfigError: The server rejects the login, or verify cannot compare the source.
        UnreachableError: The server does not answer.
    """
    match source:
        case PostgresSource():
            return open_postgres(source)
        case MysqlSource():
            return open_mysql(source)
        case _:
            raise ConfigError(f"verify cannot compare {source.type_name}")
