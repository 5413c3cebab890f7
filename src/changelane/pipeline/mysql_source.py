# SPDX-License-Identifier: Apache-2.0
"""The options of the sources ``mysql`` and ``mariadb``: databases that are captured."""

from typing import Annotated

import msgspec

from changelane.pipeline.database_source import (
    DatabaseSource,
    check_table_names,
    server_name_of,
    topic_name_pattern,
)


class MysqlSource(
    DatabaseSource,
    frozen=True,
    kw_only=True,
    tag="mysql",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A MySQL database, captured by changelane itself (``docs/capture.md``).

    Attributes:
        database: The database.
        tables: The tables, ``database.table``; ``*`` and ``?`` are wildcards.
        port: The port of the server.
        server_id: The id of the capture as a replica of the server; by default derived from the
            database.
    """

    database: str
    tables: Annotated[list[str], msgspec.Meta(min_length=1)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 3306
    server_id: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)] | None = None

    def __post_init__(self) -> None:
        """Reject tables of other databases, and names that Debezium rejects."""
        super().__post_init__()
        check_table_names(self.tables, "database")
        if [name for name in self.tables if name.partition(".")[0] != self.database]:
            raise ValueError("tables has names of another database than database")

    @property
    def product(self) -> str:
        """The name of the product."""
        return "MySQL"

    @property
    def server_name(self) -> str:
        """The name of the server in topics and positions."""
        return self.topic_prefix or server_name_of(self.database)

    @property
    def topic_pattern(self) -> str:
        """The Java regular expression of the topics that a pipeline needs.

        The topic of the statements has the server's name.
        """
        server = topic_name_pattern(self.server_name)
        return f"{server}|{server}[.]{topic_name_pattern(self.database)}[.].*"

    @property
    def label(self) -> str:
        """The database as text."""
        return f"{self.product} database {self.database} at {self.host}:{self.port}"


class MariadbSource(
    MysqlSource,
    frozen=True,
    kw_only=True,
    tag="mariadb",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A MariaDB database, captured by changelane itself (``docs/capture.md``)."""

    @property
    def product(self) -> str:
        """The name of the product."""
        return "MariaDB"
