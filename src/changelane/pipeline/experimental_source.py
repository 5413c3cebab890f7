# SPDX-License-Identifier: Apache-2.0
"""The options of the sources ``sqlserver`` and ``oracle``, whose capture no test can run.

changelane itself does not connect to such a server: Debezium's connector alone does. So everything
that needs an answer of the server is missing (``docs/capture.md``, Experimental databases).
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.pipeline.database_source import (
    KAFKA_INSTEAD,
    DatabaseSource,
    check_table_names,
    server_name_of,
    topic_name_pattern,
)

PRODUCTS: Final = {"oracle": "Oracle", "sqlserver": "SQL Server"}
"""Type of an experimental source -> product."""
PAGE: Final = "docs/capture.md#experimental-databases"
_NO_PLAIN_NAME: Final = re.compile(r'[*?"]|[.].*[.]')
_SNAPSHOT_OPTIONS: Final = ("snapshot_readers", "snapshot_chunk_rows", "new_tables")


class ExperimentalSource(
    DatabaseSource, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    """A database that no test can run; a class inherits from it.

    Attributes:
        experimental: ``true`` accepts that no test runs such a server; without it, the source is
            rejected.
        database: The database.
        tables: The tables, ``schema.table``, without wildcards and quotes.
        new_tables: ``stop``: rows of single tables are not read.
    """

    experimental: bool = False
    database: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tables: Annotated[list[str], msgspec.Meta(min_length=1)]
    new_tables: Literal["snapshot", "stop"] = "stop"

    def __post_init__(self) -> None:
        """Reject options that need a connection of changelane itself."""
        super().__post_init__()
        if not self.experimental:
            raise ValueError(
                f"the capture of {self.product} needs experimental: true, because no test runs "
                "such a server: what its connector writes, and a restart, are untested "
                f"({PAGE}); or {KAFKA_INSTEAD}"
            )
        if self.connect_url is not None:
            raise ValueError(
                f"connect_url is not for {self.product}: register what `changelane capture config` "
                "prints, and read its topics with `type: kafka`"
            )
        if self.snapshot == "spark":
            raise ValueError(
                f"snapshot: spark is not for {self.product}: use engine, which reads all rows with "
                "one connection of Debezium, or none"
            )
        if names := self._changed_options(_SNAPSHOT_OPTIONS):
            raise ValueError(
                f"{names} is for readers, which {self.product} does not have: remove {names}"
            )
        if not self.database or "," in self.database:
            raise ValueError("database is not one database")
        check_table_names(self.tables, "schema")
        if names := ", ".join(filter(_NO_PLAIN_NAME.search, self.tables)):
            raise ValueError(
                f"tables has more than schema.table ({names}): name each table, without wildcards "
                "and quotes, because nothing lists the tables of the server"
            )

    @property
    def is_experimental(self) -> bool:
        """True: no test runs such a server, and changelane does not connect to it."""
        return True

    @property
    def product(self) -> str:
        """The name of the product."""
        return PRODUCTS[self.type_name]

    @property
    def server_name(self) -> str:
        """The name of the server in topics and positions."""
        return self.topic_prefix or server_name_of(self.database)


def unavailable(source: DatabaseSource, feature: str, instead: str) -> ConfigError:
    """Return the error of a feature that needs an answer of the server.

    Args:
        source: The database.
        feature: The feature, as the subject of a sentence.
        instead: What to do instead.
    """
    return ConfigError(
        f"{feature} is not available for the experimental {source.label}, because changelane does "
        f"not connect to it itself ({PAGE}): {instead}"
    )


def until_now_error(source: DatabaseSource) -> ConfigError:
    """Return the error of a capture that would end at the present end of the log."""
    return unavailable(
        source,
        "a capture that ends by itself",
        "set `trigger: continuous` under options, or let `changelane capture` run and read its "
        "log with `source: {type: segments}`",
    )


class SqlServerSource(
    ExperimentalSource,
    frozen=True,
    kw_only=True,
    tag="sqlserver",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A SQL Server database, captured by Debezium's connector; experimental (``docs/capture.md``).

    Attributes:
        database: The database, as the server writes its name.
        port: The port of the server.
    """

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1433

    def __post_init__(self) -> None:
        """Reject files that Microsoft's driver does not read."""
        super().__post_init__()
        if self.sslcert is not None:
            raise ValueError("sslcert is not for SQL Server, whose logins need no certificate")
        if self.sslmode == "verify-ca":
            raise ValueError("sslmode: verify-ca is not for SQL Server: use verify-full or require")

    @property
    def topic_pattern(self) -> str:
        """The Java regular expression of the topics that a pipeline needs."""
        server = topic_name_pattern(self.server_name)
        return f"{server}|{server}[.]{topic_name_pattern(self.database)}[.].*"

    @property
    def label(self) -> str:
        """The database as text."""
        return f"{self.product} database {self.database} at {self.host}:{self.port}"


class OracleSource(
    ExperimentalSource,
    frozen=True,
    kw_only=True,
    tag="oracle",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """An Oracle database, captured by Debezium's connector; experimental (``docs/capture.md``).

    Attributes:
        database: The service, that of the root container if there is a pluggable database.
        pdb: The pluggable database.
        port: The port of the listener.
    """

    pdb: str | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1521

    def __post_init__(self) -> None:
        """Reject TLS, which needs an address of another form."""
        super().__post_init__()
        if self.sslmode not in {"disable", "prefer"} or self.sslrootcert or self.sslcert:
            raise ValueError("sslmode is disable for Oracle: TLS (tcps) is not available")

    @property
    def topic_pattern(self) -> str:
        """The Java regular expression of the topics that a pipeline needs."""
        server = topic_name_pattern(self.server_name)
        schemas = sorted({topic_name_pattern(name.partition(".")[0]) for name in self.tables})
        return "|".join([server, *(f"{server}[.]{schema}[.].*" for schema in schemas)])

    @property
    def label(self) -> str:
        """The database as text."""
        name = f"{self.database}/{self.pdb}" if self.pdb else self.database
        return f"{self.product} database {name} at {self.host}:{self.port}"
