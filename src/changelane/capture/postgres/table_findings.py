# SPDX-License-Identifier: Apache-2.0
"""Findings about the tables of a capture: names, privileges, replica identity. Pure.

The replica identity of a table decides which old values an update or a delete has in the log:
https://www.postgresql.org/docs/current/logical-replication-publication.html. A published table
without one rejects updates and deletes, with an error for the application. Partitions have
identities of their own, whether or not the changes have the name of their table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

from changelane.capture.finding import Finding, about_tables, shortened
from changelane.capture.postgres.server_findings import ServerState
from changelane.capture.postgres.sql_text import identifier
from changelane.capture.postgres.tables import CapturedTable, Relation, Selection

IdentityDefect = Literal["no_key", "deferrable", "nothing", "index_missing", "index_without_key"]

_PROBLEMS: Final[dict[IdentityDefect, str]] = {
    "no_key": "there is no primary key, and the replica identity is the default",
    "deferrable": "the primary key is deferrable, and so no replica identity",
    "nothing": "the replica identity is nothing",
    "index_missing": "the index of the replica identity was dropped",
    "index_without_key": "the index of the replica identity lacks columns of the primary key",
}
_REJECTED: Final = "the server rejects updates and deletes of a published table"
_CONSEQUENCES: Final[dict[IdentityDefect, str]] = {
    "no_key": _REJECTED,
    "deferrable": _REJECTED,
    "nothing": _REJECTED,
    "index_missing": _REJECTED,
    "index_without_key": "deletes have no key and key changes no old key: both are lost",
}


def selection_findings(selection: Selection) -> Iterator[Finding]:
    """Yield findings about patterns without tables and relations that cannot be captured."""
    for text, nearest in selection.unmatched:
        yield Finding(
            severity="error",
            defect="no_table",
            about=f"table {text}",
            problem="no table has this name",
            consequence="nothing is captured",
            advice=f"did you mean {nearest}?" if nearest else "create it, or remove the name",
        )
    if selection.unlogged:
        yield _unlogged_finding("warning", selection.unlogged)
    for relation in selection.rejected:
        if relation.is_unlogged:
            yield _unlogged_finding("error", [relation])
        else:
            yield Finding(
                severity="error",
                defect="no_base_table",
                about=f"table {relation.shown}",
                problem=f"it is a {relation.kind}",
                consequence="its changes are not in the log",
                advice="remove the name" + _ALTERNATIVES.get(relation.kind, ""),
            )


def _unlogged_finding(
    severity: Literal["error", "warning"], relations: Sequence[Relation]
) -> Finding:
    return Finding(
        severity=severity,
        defect="unlogged",
        about=about_tables([relation.shown for relation in relations]),
        problem="the table is unlogged",
        consequence="its changes are not in the log",
        statements=tuple(f"ALTER TABLE {relation.sql} SET LOGGED" for relation in relations),
    )


_ALTERNATIVES: Final = {
    "view": ", and capture the tables of its query",
    "materialized view": ", and capture the tables of its query",
    "foreign table": ", and capture it in its own database",
}


def table_findings(tables: Sequence[CapturedTable], server: ServerState) -> Iterator[Finding]:
    """Yield findings about the tables that are captured."""
    yield from _privilege_findings(tables, server)
    yield from _identity_findings(tables)
    yield from _toast_findings(tables)
    if partitioned := [table for table in tables if table.relation.kind == "partitioned table"]:
        yield _finding(
            "warning",
            "partitions",
            partitioned,
            problem="TRUNCATE, DROP and DETACH of one partition log no rows",
            consequence="the lake keeps the rows of the partition",
            advice="DELETE the rows first, or take a new snapshot afterwards",
        )
    if keyless := [table for table in tables if _is_keyless(table)]:
        yield _finding(
            "warning",
            "no_key",
            keyless,
            problem="there is neither a primary key nor a unique index without NULL",
            consequence="equal rows cannot be distinguished",
            advice="add a primary key, or name key columns under options.keys",
        )
    yield from _inheritance_findings(tables)
    for table in tables:
        if lost := [part.relation for part in table.partitions if not part.relation.is_publishable]:
            yield _finding(
                "error",
                "unlogged_partitions",
                [table],
                problem=(
                    "partitions are unlogged or foreign tables: "
                    + shortened([relation.shown for relation in lost])
                ),
                consequence="their changes are not in the log",
                sql_statements=(
                    f"ALTER TABLE {relation.sql} SET LOGGED"
                    for relation in lost
                    if relation.is_unlogged
                ),
            )


def _finding(
    severity: Literal["error", "warning"],
    defect: str,
    tables: Sequence[CapturedTable],
    *,
    problem: str,
    consequence: str,
    sql_statements: Iterable[str] = (),
    advice: str = "",
) -> Finding:
    return Finding(
        severity=severity,
        defect=defect,
        about=about_tables([table.relation.shown for table in tables]),
        problem=problem,
        consequence=consequence,
        statements=tuple(sql_statements),
        advice=advice,
    )


def _privilege_findings(tables: Sequence[CapturedTable], server: ServerState) -> Iterator[Finding]:
    user = identifier(server.user)
    if hidden := [table for table in tables if not table.has_usage]:
        schemas = dict.fromkeys(identifier(table.relation.schema) for table in hidden)
        yield _finding(
            "error",
            "usage_privilege",
            hidden,
            problem=f"the user {server.user} lacks USAGE on the schema",
            consequence="a snapshot cannot read it",
            sql_statements=(f"GRANT USAGE ON SCHEMA {schema} TO {user}" for schema in schemas),
        )
    if unreadable := [table for table in tables if table.has_usage and not table.has_select]:
        yield _finding(
            "error",
            "select_privilege",
            unreadable,
            problem=f"the user {server.user} lacks SELECT",
            consequence="a snapshot cannot read it",
            sql_statements=(
                f"GRANT SELECT ON {table.relation.sql} TO {user}" for table in unreadable
            ),
        )
    if filtered := [table for table in tables if table.has_row_security]:
        yield _finding(
            "error",
            "row_security",
            filtered,
            problem=f"row-level security hides rows from the user {server.user}",
            consequence="a snapshot lacks these rows",
            sql_statements=(f"ALTER ROLE {user} BYPASSRLS",),
        )


# -- replica identity


def identity_defect(captured_table: CapturedTable) -> IdentityDefect | None:
    """Return why updates and deletes of a table lack their key; ``None`` if they do not."""
    key = captured_table.primary_key
    match captured_table.replica_identity:
        case "f":
            return None
        case "n":
            return "nothing"
        case "i":
            if captured_table.identity_index is None:
                return "index_missing"
            is_covered = key is None or set(key.names) <= set(captured_table.identity_index.names)
            return None if is_covered else "index_without_key"
        case _:
            if key is None:
                return "no_key"
            return None if key.is_immediate else "deferrable"


def identity_statement(captured_table: CapturedTable) -> str:
    """Return the statement that gives a table its smallest sufficient replica identity."""
    identity = "FULL"
    if captured_table.primary_key is not None:
        identity = "DEFAULT" if captured_table.primary_key.is_immediate else "FULL"
    elif captured_table.candidate is not None:
        identity = f"USING INDEX {identifier(captured_table.candidate.index)}"
    return f"ALTER TABLE {captured_table.relation.sql} REPLICA IDENTITY {identity}"


def _members(captured_table: CapturedTable) -> tuple[CapturedTable, ...]:
    """Return the tables whose replica identities matter: the table and its partitions."""
    return (
        captured_table,
        *(part for part in captured_table.partitions if part.relation.is_publishable),
    )


def _with_members(
    tables: Iterable[CapturedTable], condition: Callable[[CapturedTable], bool]
) -> tuple[list[CapturedTable], list[CapturedTable]]:
    """Return the tables of which a member fulfils a condition, and these members."""
    affected, members = [], []
    for table in tables:
        if fulfilling := [member for member in _members(table) if condition(member)]:
            affected.append(table)
            members += fulfilling
    return affected, members


def _identity_findings(tables: Sequence[CapturedTable]) -> Iterator[Finding]:
    for defect, problem in _PROBLEMS.items():

        def has_defect(member: CapturedTable, defect: IdentityDefect = defect) -> bool:
            return identity_defect(member) == defect

        affected, members = _with_members(tables, has_defect)
        if not affected:
            continue
        has_partitions = any(table.relation.kind == "partitioned table" for table in affected)
        yield _finding(
            "error",
            f"replica_identity_{defect}",
            affected,
            problem=problem,
            consequence=_CONSEQUENCES[defect],
            sql_statements=map(identity_statement, members),
            advice="the same for each new partition" if has_partitions else "",
        )


def _toast_findings(tables: Sequence[CapturedTable]) -> Iterator[Finding]:
    def lacks_values(member: CapturedTable) -> bool:
        return (
            member.has_toast and member.replica_identity != "f" and identity_defect(member) is None
        )

    affected, members = _with_members(tables, lacks_values)
    if not affected:
        return
    # the identity of the table itself states the kind of the old image of its partitions
    roots = [
        table
        for table in affected
        if table.relation.kind == "partitioned table" and table.replica_identity != "f"
    ]
    altered = {member.relation.oid: member for member in (*roots, *members)}
    yield _finding(
        "warning",
        "unchanged_large_values",
        affected,
        problem="updates lack large values that they do not change",
        consequence=(
            "the lake keeps its stored values; they are unknown where it has none, and after a "
            "key change"
        ),
        sql_statements=(
            f"ALTER TABLE {member.relation.sql} REPLICA IDENTITY FULL"
            for member in altered.values()
        ),
        advice="which makes the log larger",
    )


def _is_keyless(captured_table: CapturedTable) -> bool:
    return captured_table.primary_key is None and captured_table.candidate is None


def _inheritance_findings(tables: Sequence[CapturedTable]) -> Iterator[Finding]:
    selected = {table.relation.oid for table in tables}
    for table in tables:
        if not table.children:
            continue
        missing = [child.shown for child in table.children if child.oid not in selected]
        children = shortened([child.shown for child in table.children])
        yield _finding(
            "error" if missing else "warning",
            "inherited_tables",
            [table],
            problem=f"tables inherit from it: {children}",
            consequence=(
                "changes of their rows have their names, and "
                + ("are lost" if missing else "the lake has them in these tables only")
            ),
            advice=f"capture {shortened(missing)}, too" if missing else "",
        )
