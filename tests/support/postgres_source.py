# SPDX-License-Identifier: Apache-2.0
"""A database of the tests' PostgreSQL with a user who captures it, and the checks of it."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from postgres_server import PostgresServer
from psycopg import sql

from changelane.capture.finding import Finding
from changelane.capture.postgres import PostgresConnection, check_server

PUBLICATION = "capture_publication"


class Source:
    """A database and the login of a user who may read the log and the schema ``public``."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server = server
        self.database = database
        self.slot = f"{database}_slot"
        self.user = f"{database} reader"
        self.login = PostgresConnection(
            host=server.host,
            port=server.port,
            database=database,
            user=self.user,
            password="it's the reader's",
        )

    def run(self, *statements: str) -> None:
        """Execute statements as the superuser."""
        with self.server.connect(self.database) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.server.connect(self.database) as connection:
            return connection.execute(statement).fetchall()

    def publish(self, *tables: str, options: str = "publish_via_partition_root = true") -> None:
        names = ", ".join(tables)
        self.run(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {names} WITH ({options})")

    def create_slot(self, plugin: str = "pgoutput") -> None:
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', '{plugin}')")

    def log(self) -> bytes:
        """The changes since the last call, as ``pgoutput`` writes them."""
        rows = self.rows(
            f"SELECT data FROM pg_logical_slot_get_binary_changes('{self.slot}', NULL, NULL, "
            f"'proto_version', '1', 'publication_names', '{PUBLICATION}')"
        )
        return b"".join(data for (data,) in rows)

    def check(self, *tables: str, **options: Any) -> dict[str, Finding]:
        """The findings by their codes."""
        findings = check_server(
            self.login,
            tables=tables or ["public.*"],
            **{"publication": PUBLICATION, "slot": self.slot, **options},
        )
        by_code = {finding.defect: finding for finding in findings}
        assert len(by_code) == len(findings), [finding.text() for finding in findings]
        return by_code

    def mend(self, finding: Finding) -> None:
        """Execute the statements of a finding as the superuser."""
        assert finding.statements, finding.text()
        self.run(*finding.statements)


@contextlib.contextmanager
def new_source(server: PostgresServer, statements: Sequence[str] = ()) -> Iterator[Source]:
    """Create a database with a reader, and drop both at the end."""
    with server.new_database("shop") as database:
        source = Source(server, database)
        user = sql.Identifier(source.user)
        create = sql.SQL("CREATE ROLE {} LOGIN REPLICATION PASSWORD {}")
        try:
            with server.connect(database) as connection:
                connection.execute(create.format(user, sql.Literal(source.login.password)))
                connection.execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(user))
                connection.execute(
                    sql.SQL(
                        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {}"
                    ).format(user)
                )
            source.run(*statements)
            yield source
        finally:
            if server.is_up:
                with server.connect(database) as connection:
                    connection.execute(sql.SQL("DROP OWNED BY {}").format(user))
                    connection.execute(sql.SQL("DROP ROLE {}").format(user))
