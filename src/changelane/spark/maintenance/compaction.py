# SPDX-License-Identifier: Apache-2.0
"""Keeps tables in shape between the batches of a run: small files, old versions, old deletes.

It happens inside the applier, never beside it: a compaction beside a running MERGE makes one of
the two fail. A run that dies in the middle of it leaves whole tables: each step is a commit of its
own that changes no row, and markers are moved to where expiry leaves them before it comes.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import functions as F

from changelane.pipeline.lake_sinks import OWN
from changelane.pipeline.options import Maintenance
from changelane.schema import named
from changelane.spark.lake.interface import TABLES, Files, Kept, Lake, name_of
from changelane.spark.maintenance.purge import Purged, Seen, horizons, purge
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import change_log, history_tombstones, quarantine, replays, tombstones
from changelane.spark.state.fencing import Fence
from changelane.spark.state.full_history import companion_of
from changelane.spark.state.tombstones import SideTable

MAINTAINED: Final = "maintained"
"""The table property that keeps when a table was last seen to."""
PURGED: Final = "purged_ms"
"""The property of the side table that keeps when deletes were last purged."""
_OWN: Final = (
    tombstones.NAME,
    history_tombstones.NAME,
    quarantine.NAME,
    replays.NAME,
    change_log.NAME,
)
_EXPIRE_EVERY_S: Final = 86_400
_PURGE_EVERY_S: Final = 3_600


class Upkeep(msgspec.Struct):
    """What maintenance did to one table.

    Attributes:
        table: Its place in the lake.
        files: How many data files it had.
        small: How many of them were small.
        is_compacted: Whether small files were rewritten.
        is_expired: Whether old versions were expired.
    """

    table: str
    files: int
    small: int
    is_compacted: bool = False
    is_expired: bool = False


class _Last(msgspec.Struct, frozen=True):
    """When a table was last seen to: its commits then, and when old versions were expired."""

    commits: int = 0
    expired_ms: int = 0
    time_ms: int = 0


def maintained_ms(properties: Mapping[str, str]) -> int | None:
    """Return when a table was last seen to, by its properties (:data:`MAINTAINED`)."""
    return _last(properties).time_ms or None


def _last(properties: Mapping[str, str]) -> _Last:
    return msgspec.json.decode(properties.get(MAINTAINED, "{}"), type=_Last)


class Keeper:
    """Maintains the tables of one run.

    Args:
        lake: The tables.
        remembers: What is remembered of their rows that are not there.
        limits: When there is something to do; ``None`` = maintenance is off.
        purge_after_s: How many seconds older than the newest event of its table a delete is that
            may be forgotten; ``None`` = deletes are remembered for ever.
        fence: The run; it does nothing once a newer one writes.
        now_s: A clock.
    """

    def __init__(
        self,
        lake: Lake,
        remembers: SideTable,
        limits: Maintenance | None,
        *,
        purge_after_s: int | None = None,
        fence: Fence | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._lake = lake
        self._side = remembers
        self._limits = limits
        self._purge_after_s = purge_after_s
        self._fence = fence
        self._now_s = now_s
        self._touched: set[str] = set()
        self._batches = 0
        self._due_ms = 0

    def after_batch(self, seen: Mapping[str, Seen]) -> list[Upkeep]:
        """Do what is due after a batch.

        Args:
            seen: What the batch held, by table id.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        self._batches += 1
        self._touched.update(map(name_of, seen))
        if self._purge_after_s is not None:
            self._purge(seen)
        if self._limits is None or self._batches % self._limits.commits:
            return []
        return self.touched()

    def at_the_end(self, seen: Mapping[str, Seen]) -> list[Upkeep]:
        """Do what is due at the end of a run, as :meth:`after_batch`."""
        self._touched.update(map(name_of, seen))
        return self.touched()

    def touched(self) -> list[Upkeep]:
        """See to the tables that this run wrote since it last did, and to changelane's own.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        if self._limits is None or not self._touched:
            return []
        names = sorted(self._touched)
        self._touched.clear()
        return self._each(names)

    def everything(self) -> list[Upkeep]:
        """See to every table now.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        return self._each(self._lake.tables(), force=True)

    def _each(self, tables: Sequence[str], *, force: bool = False) -> list[Upkeep]:
        names = [*tables, *map(companion_of, tables), *_OWN]
        return [found for name in names if (found := self.see_to(name, force=force)) is not None]

    def see_to(self, name: str, *, force: bool = False) -> Upkeep | None:
        """Maintain one table, if there is something to do and the format leaves it to changelane.

        Args:
            name: The table's place in the lake.
            force: Whatever was done when.

        Raises:
            FencedError: A newer run of the pipeline writes the tables.
        """
        limits = self._limits or Maintenance()
        lake = self._lake
        if not isinstance(lake, Kept) or not lake.exists(name):
            return None
        properties = lake.properties(name)
        if name.startswith(TABLES) and "table" not in properties:
            return None  # changelane did not make it
        last = _last(properties)
        commits, now_ms = lake.commits(name), int(self._now_s() * 1000)
        if commits - last.commits < limits.commits and not force:
            return None
        if self._fence is not None:
            self._fence.check(lake.properties(tombstones.NAME))
        small_bytes = limits.small_mb * 1024 * 1024
        files: Files = lake.files(name, small_bytes)
        done = Upkeep(name, *files)
        if files.small >= limits.small_files or (force and files.small > 1):
            lake.compact(name, small_bytes, self._clusters(name, properties, limits))
            done.is_compacted = True
        keep_s = limits.keep_s
        expired_ms = last.expired_ms
        if force or now_ms - expired_ms >= min(keep_s, _EXPIRE_EVERY_S) * 1000:
            lake.expire(name, keep_s)
            done.is_expired, expired_ms = True, now_ms
        told = _Last(lake.commits(name), expired_ms, now_ms)
        lake.set_properties(name, {MAINTAINED: msgspec.json.encode(told).decode()})
        return done

    def _clusters(
        self, name: str, properties: Mapping[str, str], limits: Maintenance
    ) -> tuple[str, ...]:
        """Return the columns by which a table is clustered: those chosen that it has."""
        if "table" not in properties:
            return ()
        chosen = named(limits.cluster, table_id_of(properties["table"])) or []
        held = {column.lower(): column for column in self._lake.columns(name)}
        return tuple(
            held[column.lower()]
            for column in chosen
            if column.lower() in held and not column.lower().startswith(OWN)
        )

    def _purge(self, seen: Mapping[str, Seen]) -> None:
        now_ms = int(self._now_s() * 1000)
        if now_ms < self._due_ms:
            return
        properties = self._lake.properties(tombstones.NAME)
        self._due_ms = int(properties.get(PURGED, "0")) + _PURGE_EVERY_S * 1000
        if now_ms < self._due_ms:
            return
        if self._fence is not None:
            self._fence.check(properties)
        self.forget(after_us=(self._purge_after_s or 0) * 1_000_000, seen=seen)
        self._lake.set_properties(tombstones.NAME, {PURGED: str(now_ms)})
        self._due_ms = now_ms + _PURGE_EVERY_S * 1000

    def _waiting(self) -> dict[str, Seen]:
        """Return what waits for tables in the change log, by table id."""
        if not self._lake.exists(change_log.NAME):
            return {}
        log = self._lake.read(change_log.NAME).where("`order` IS NOT NULL")
        found = log.groupBy("table_id").agg(F.min("order").alias("oldest")).collect()
        return {row["table_id"]: Seen(bytes(row["oldest"])) for row in found}

    def forget(
        self,
        *,
        before_us: int | None = None,
        after_us: int | None = None,
        seen: Mapping[str, Seen] | None = None,
        dry_run: bool = False,
    ) -> list[Purged]:
        """Forget old deletes (:func:`.purge.horizons`); return what they are."""
        seen = dict(seen or {})
        for table_id, waiting in self._waiting().items():
            seen[table_id] = seen.get(table_id, waiting).with_(waiting)
        orders, found = horizons(
            self._lake, self._side, before_us=before_us, after_us=after_us, seen=seen
        )
        if not dry_run:
            purge(self._lake, self._side, orders)
        return found
