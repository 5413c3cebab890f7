# SPDX-License-Identifier: Apache-2.0
"""Statements of PostgreSQL, which its log has only as messages of an event trigger.

The event trigger (:mod:`changelane.capture.postgres.ddl_trigger`) writes a logical message for each
changed table, in the transaction of the statement. Its content is a JSON object:

``schema``, ``table``
    The table after the statement.
``ddl``
    A statement that the trigger wrote from the catalog, for a created or dropped table.
``query``
    The text that the client sent at once, which may have several statements; ``null`` if the
    statement is none of them, because a function executed it.
``number``
    The number of the statement among those of the text that create, alter or drop a table.
"""

from typing import Final

import msgspec

from changelane.ddl import RenameTable, Statement, parse
from changelane.ddl.tokenizer import UnknownSyntaxError, tokenize
from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

DDL_PREFIX: Final = "changelane.ddl"
"""The prefix of the logical messages of the event trigger."""
_COUNTED: Final = frozenset({"CREATE", "ALTER", "DROP"})
_ADJECTIVES: Final = frozenset({"GLOBAL", "LOCAL", "TEMPORARY", "TEMP", "UNLOGGED"})


class ReportedStatement(msgspec.Struct, frozen=True):
    """A statement that changed a table.

    Attributes:
        table: Its table, by the name before the statement.
        text: The statement alone. One that is unknown is written as ``ALTER TABLE`` without a
            change, which no reader can parse.
    """

    table: TableId
    text: str


class _Content(msgspec.Struct):
    schema: str
    table: str
    ddl: str | None = None
    query: str | None = None
    number: int = 0


_CONTENT: Final = msgspec.json.Decoder(_Content)


def reported_statement(content: bytes, database: str | None) -> ReportedStatement | None:
    """Return the statement of a message; ``None`` = the event trigger did not write it.

    Args:
        content: The content of the logical message.
        database: The database of the message.

    Raises:
        DecodeError: The content is no UTF-8, as in a database without an encoding.
    """
    try:
        report = _CONTENT.decode(content)
    except UnicodeDecodeError:
        path = "$.message.content"
        msg = "a reported statement is not UTF-8"
        raise DecodeError(msg, code=ReasonCode.INVALID_UTF8, path=path) from None
    except msgspec.DecodeError:
        return None
    table = TableId(database, report.schema, report.table)
    if report.ddl is not None:
        return ReportedStatement(table, report.ddl)
    return _numbered_statement(report, table) or ReportedStatement(
        table, f"ALTER TABLE {_quoted(report.schema)}.{_quoted(report.table)}"
    )


def _numbered_statement(report: _Content, table: TableId) -> ReportedStatement | None:
    """Return the statement with the number of a report, if it changes the table of the report."""
    default_table = TableId(table.database, table.schema)
    statements = [
        (verb, statement)
        for statement in parse(report.query or "", "postgresql", default_table)
        if (verb := _verb_of(statement)) in _COUNTED
    ]
    if not 0 < report.number <= len(statements):
        return None
    verb, statement = statements[report.number - 1]
    names = {statement.table}
    for change in statement.changes:
        if isinstance(change, RenameTable):
            if change.table == change.new_table:
                return None  # a table of another schema, which the text does not name
            names = {change.new_table}
    if verb != "ALTER" or names != {table}:
        return None
    return ReportedStatement(statement.table, statement.text)


def _verb_of(statement: Statement) -> str:
    """Return the verb of a statement about a table; empty for any other statement.

    PostgreSQL's command tag depends on these words alone: ``ALTER TABLE`` is also the tag of one
    that adds an index, and never that of a foreign table.
    """
    try:
        _, words = tokenize(statement.text, "postgresql")
    except UnknownSyntaxError:
        return ""
    head = [word.upper for word in words[:4] if word.upper not in _ADJECTIVES]
    return head[0] if head[1:2] == ["TABLE"] else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
