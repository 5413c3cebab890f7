# SPDX-License-Identifier: Apache-2.0
"""The options of a ``postgres`` source: a database whose changes changelane captures itself."""

import re
from typing import Annotated, Final, Literal

import msgspec

from changelane.pipeline.database_source import (
    DatabaseSource,
    check_table_names,
    server_name_of,
    topic_name_pattern,
)

_SCHEMA: Final = re.compile(r'"((?:[^"]|"")+)"|[^.]+')
"""The schema in ``schema.table``, perhaps in quotes."""
_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")


class PostgresSource(
    DatabaseSource,
    frozen=True,
    kw_only=True,
    tag="postgres",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A PostgreSQL database, captured by changelane itself (``docs/capture.md``).

    Attributes:
        database: The database.
        tables: The tables, ``schema.table``; ``*`` and ``?`` are wildcards.
        port: The port of the server.
        slot: The replication slot; by default ``changelane_`` and the database.
        publication: The publication; by default the name of the slot.
        ddl: What reports the statements that change tables: ``event_trigger``, which a superuser
            installs once, or ``none``: then the schemas of the rows show the changes.
    """

    database: str
    tables: Annotated[list[str], msgspec.Meta(min_length=1)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 5432
    slot: str | None = None
    publication: str | None = None
    ddl: Literal["none", "event_trigger"] = "none"

    def __post_init__(self) -> None:
        """Reject names that PostgreSQL or Debezium rejects."""
        super().__post_init__()
        if self.slot is not None and _SLOT.fullmatch(self.slot) is None:
            raise ValueError("slot has other characters than a-z, 0-9 and _, or more than 63")
        if self.publication is not None and not 1 <= len(self.publication.encode()) <= 63:
            raise ValueError("publication must have 1 to 63 bytes")
        check_table_names(self.tables, "schema")

    @property
    def slot_name(self) -> str:
        """The name of the replication slot."""
        return self.slot or re.sub(r"[^a-z0-9_]", "_", f"changelane_{self.database}".lower())[:63]

    @property
    def publication_name(self) -> str:
        """The name of the publication."""
        return self.publication or self.slot_name

    @property
    def server_name(self) -> str:
        """The name of the server in topics and positions."""
        return self.topic_prefix or server_name_of(self.database)

    @property
    def topic_pattern(self) -> str:
        """The Java regular expression of the topics that a pipeline needs."""
        server = topic_name_pattern(self.server_name)
        schemas = {_schema_pattern(name) for name in self.tables}
        topics = [f"{server}[.]{schema}[.].*" for schema in sorted(schemas)]
        if self.ddl == "event_trigger":
            topics.append(f"{server}[.]message")  # the statements
        return "|".join(topics)

    @property
    def label(self) -> str:
        """The database as text."""
        return f"PostgreSQL database {self.database} at {self.host}:{self.port}"


def _schema_pattern(table: str) -> str:
    """Return the pattern of the schema of a table's pattern in topics.

    >>> _schema_pattern("pub?ic.*"), _schema_pattern('"my.schema".orders')
    ('pub.ic', 'my[.]schema')
    """
    schema = _SCHEMA.match(table)
    if schema is None:
        return ".*"
    if schema[1] is not None:
        return topic_name_pattern(schema[1].replace('""', '"'))
    wildcards = {"*": ".*", "?": "."}
    return "".join(wildcards.get(char) or topic_name_pattern(char) for char in schema[0])
