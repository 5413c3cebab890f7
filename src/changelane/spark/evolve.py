# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas of their events: create, add columns, or refuse with the reason."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F

from changelane.position import OffsetPosition
from changelane.spark.delta import DeltaTables
from changelane.spark.fold import Target
from changelane.spark.rows import RowSchema
from changelane.spark.side import Remembered
from changelane.spark.sql import COLUMNS, ORDER, RESERVED_PREFIX, STATE_COLUMNS
from changelane.spark.survey import Work

MIXED: Final = "positions of different kinds never mix in one table"
_STATE_TYPES: Final = {ORDER: "binary", COLUMNS: "map<string,binary>"}


class Misfit(Exception):  # noqa: N818 - control flow inside this module
    """A table cannot take these events; they go to the quarantine."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Plan(NamedTuple):
    """How the events of one table and batch are applied.

    Attributes:
        work: What the batch holds of the table.
        path: Where the table lies.
        target: Its columns, and the schemas of the events.
        properties: changelane's own properties of the table.
    """

    work: Work
    path: str
    target: Target
    properties: dict[str, str]

    @property
    def odd(self) -> Column | None:
        """The rows whose positions are of another kind than the table's; ``None`` = there are none.

        Such as those of an incremental snapshot, which PostgreSQL's connector sends without.
        """
        kind = bytes.fromhex(self.properties["order"])[:2]
        if all(domain[:2] == kind for domain in self.work.domains):
            return None
        mine = F.col("table_id") == self.work.table_id
        return mine & (F.substring("order", 1, 2) != F.lit(bytearray(kind)))

    @property
    def is_exceptional(self) -> bool:
        """Whether the table may hold columns of different ages, or the batch brings some."""
        return self.work.has_parts or "exceptions" in self.properties


def plan(
    delta: DeltaTables, path: str, work: Work, known: Remembered, *, keyless: str
) -> Plan | None:
    """Create or evolve the table of some events, and say how they are applied.

    ``None`` when there is no table yet and only truncates tell of it: they are remembered.

    Raises:
        Misfit: The table cannot take them.
    """
    exists = delta.exists(path)
    properties = delta.properties(path) if exists else {}
    if not work.domains or (not work.schemas and not exists):
        return None
    _check_orders(work, properties, known)
    if work.schemas:
        if work.active.key is None and keyless != "append":
            raise Misfit("no_key", "the table has no key: name its key columns under `keys`")
        wanted = _wanted(work)
        if exists:
            _evolve(delta, path, work, wanted, properties)
        else:
            properties = _told(work) | {"table": work.table_id, "order": min(work.domains).hex()}
            delta.create(path, wanted | _STATE_TYPES, properties)
    active = msgspec.json.decode(properties["schema"], type=RowSchema)
    held = delta.columns(path)
    columns = {name: kind for name, kind in held.items() if name not in STATE_COLUMNS}
    target = Target(columns, tuple(active.key or ()), work.schemas)
    return Plan(work, path, target, properties)


def _told(work: Work) -> dict[str, str]:
    return {
        "schema": msgspec.json.encode(work.active).decode(),
        "schema_order": max(work.newest.values(), default=b"").hex(),
    }


def _check_orders(work: Work, properties: Mapping[str, str], known: Remembered) -> None:
    held = min(work.domains)
    if "order" in properties:
        held = bytes.fromhex(properties["order"])
    elif known.truncated:
        tag = known.truncated[-9:-1] if known.truncated[1] == OffsetPosition.code else b""
        held = known.truncated[:2] + tag
    if not any(domain[:2] == held[:2] for domain in work.domains):
        raise Misfit("unordered", MIXED)
    if held[1] == OffsetPosition.code and any(
        domain != held for domain in work.domains if domain[:2] == held[:2]
    ):
        raise Misfit(
            "unordered",
            "the events have no positions and come from several partitions or files, whose "
            "offsets cannot be compared: use one partition, or a format with positions",
        )


def _evolve(
    delta: DeltaTables,
    path: str,
    work: Work,
    wanted: Mapping[str, str],
    properties: dict[str, str],
) -> None:
    held = {name.lower(): kind for name, kind in delta.columns(path).items()}
    for name, kind in wanted.items():
        there = held.get(name.lower())
        if there is not None and not _widens(kind, there):
            reason = f"column {name!r} is {there} in the table and {kind} in the events"
            raise Misfit("schema_mismatch", reason)
    before = msgspec.json.decode(properties["schema"], type=RowSchema)
    if work.active.key != before.key:
        raise Misfit("schema_mismatch", "the key columns are not those of the table")
    added = {name: kind for name, kind in wanted.items() if name.lower() not in held}
    if added:
        delta.add_columns(path, added)
    told = _told(work)
    if work.active != before and told["schema_order"] > properties["schema_order"]:
        delta.set_properties(path, told)
        properties.update(told)


def _wanted(work: Work) -> dict[str, str]:
    """Return the columns that a batch's events need, the newest schema's types first."""
    active = work.active
    wanted: dict[str, str] = {}
    seen: dict[str, str] = {}
    for schema in (active, *work.schemas.values()):
        if len({column.name.lower() for column in schema.columns}) < len(schema.columns):
            raise Misfit("case_collision", "columns differ by case only, or not at all")
        for column in schema.columns:
            if not column.name:
                raise Misfit("schema_mismatch", "a column has no name")
            if column.name.lower().startswith(RESERVED_PREFIX):
                raise Misfit("schema_mismatch", f"column names must not begin {RESERVED_PREFIX}")
            known = seen.setdefault(column.name.lower(), column.name)
            if known not in wanted:
                wanted[known] = column.spark
            elif not _widens(column.spark, wanted[known]):
                raise Misfit("schema_mismatch", f"column {known!r} has two types in one batch")
    return wanted


_WIDENINGS: Final = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def _widens(one: str, other: str) -> bool:
    """Say whether every value of *one* is a value of *other*."""
    one, other = (kind.lower().replace(" ", "") for kind in (one, other))
    if one == other or other in _WIDENINGS.get(one, ()):
        return True
    if one.startswith("decimal(") and other.startswith("decimal("):
        p, s = map(int, one[8:-1].split(","))
        q, r = map(int, other[8:-1].split(","))
        return r >= s and q - r >= p - s
    return False
