# SPDX-License-Identifier: Apache-2.0
"""From message bytes to committed rows, against a bare MERGE of the same rows. See README.md.

Usage: apply.py [--changes N] [--batches N] [--rows N] [--lake delta|iceberg] [PART ...]

The baseline is hand-written: each batch is Parquet, already parsed, typed and reduced to one row
per key, and one MERGE applies it.
"""

import argparse
import gc
import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import load
import orders
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import local_spark, processor_seconds, resident_mb
from orders import TEXTS, TYPES
from pyspark.sql import functions as F

from changelane.pipeline.options import Maintenance
from changelane.spark import decode
from changelane.spark.apply.applier import Applier, is_small_batch
from changelane.spark.apply.dispatch import MergeSchedule, TableDispatcher
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.merge import full_row_merge
from changelane.spark.runtime.sql import COLUMNS, DEPARTED, LIVE, ORDER, UPSERTED

KEYS: Final = 300_000
BARE_TABLE: Final = "tables/orders"
LANDED_TABLE: Final = "tables/shop.public.orders"
"""The tables of the baseline and of changelane, before their numbers."""
ROW_FORM_TABLE: Final = f"{LANDED_TABLE}0"
MOVE: Final = "m"
"""The op of an update that changes the key of its row."""
UNAVAILABLE: Final = "__debezium_unavailable_value"
SPARK: Final = {"int64": "BIGINT", "int32": "INT", "float64": "DOUBLE", "string": "STRING"}
ARROW: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "string": pa.string(),
}


class Work(NamedTuple):
    """A workload: changes in batches, and the tables they belong to.

    Attributes:
        name: For the output.
        changes: How many changes in all.
        columns: Columns of each table.
        is_partial: Updates of an existing key lack two columns.
        tables: How many tables.
        keys: How many different keys a table has.
        is_uneven: The n-th table gets a share of 1/n of the changes (Zipf), not an equal one.
        rows: Rows with other keys that each table gets after the first batch.
        batches: How many batches the changes come in.
        moves: One of so many changes gives a row another key; 0 = none does.
    """

    name: str
    changes: int
    columns: int = len(TYPES)
    is_partial: bool = False
    tables: int = 1
    keys: int = KEYS
    is_uneven: bool = False
    rows: int = 0
    batches: int = 5
    moves: int = 0

    @property
    def types(self) -> dict[str, str]:
        """Column -> type; additional columns are texts."""
        more = {f"c{index:03}": "string" for index in range(self.columns - len(TYPES))}
        return TYPES | more


def changes(work: Work) -> Iterator[tuple[str, str, dict[str, Any], set[str]]]:
    """Yield table, op, row and the columns missing from its message.

    60 % are inserts (also of existing keys, as after a restart), 30 % updates, 10 % deletes. A row
    that changes its key gets one that is greater by the number of keys.
    """
    choice = random.Random(7)  # noqa: S311 - the same changes each time
    live: list[dict[int, dict[str, Any]]] = [{} for _ in range(work.tables)]
    texts = [name for name, kind in work.types.items() if kind == "string"]
    heat = list(itertools.accumulate(1 / (n + 1) for n in range(work.tables)))
    words = ["".join(choice.choices("abcdefghijklmnop ", k=12)) for _ in range(1000)]
    for index in range(work.changes):
        number = index % work.tables
        if work.is_uneven:
            number = choice.choices(range(work.tables), cum_weights=heat)[0]
        rows = live[number]
        key = choice.randrange(work.keys)
        row = {name: choice.choice(words) for name in texts}
        row |= {"o_orderkey": key, "o_custkey": choice.randrange(1 << 30)}
        row |= {"o_totalprice": choice.randrange(10**7) / 100, "o_shippriority": index % 5}
        current, missing = rows.get(key), set[str]()
        op = choice.choices("cud", (6, 3, 1))[0]
        if work.moves and index % work.moves == 0:
            rows.pop(key, None)
            yield f"orders{number}", MOVE, row | {"o_orderkey": key + work.keys}, missing
            continue
        if op == "d":
            rows.pop(key, None)
            yield f"orders{number}", op, current or row, missing
            continue
        if op == "u" and current is not None and work.is_partial:
            missing = set(texts[:2])
            row |= {name: current[name] for name in missing}
        rows[key] = row
        yield f"orders{number}", op, row, missing


def message(work: Work, table: str, change: tuple[str, dict[str, Any], set[str]], at: int) -> bytes:
    """Return a change as Debezium writes it for PostgreSQL's default replica identity.

    The image before a delete or a change of the key has the key, and NULL in the other columns.
    """
    op, row, missing = change
    if op == MOVE:
        before = dict.fromkeys(row) | {"o_orderkey": row["o_orderkey"] - work.keys}
        return orders.message("u", before, row, at, table)
    if op == "d":
        before = dict.fromkeys(row) | {"o_orderkey": row["o_orderkey"]}
        return orders.message(op, before, None, at, table)
    shown = {name: UNAVAILABLE if name in missing else value for name, value in row.items()}
    return orders.message(op, None, shown, at, table)


def written(work: Work, folder: Path) -> tuple[list[Path], dict[str, list[Path]]]:
    """Write messages, and the typed rows that the baseline merges, in batches.

    Returns:
        A file of messages for each batch, and files of typed rows by table.
    """
    batches, typed = [], {f"orders{n}": list[Path]() for n in range(work.tables)}
    pending: dict[str, dict[int, tuple[dict[str, Any], bool, int]]] = {name: {} for name in typed}
    bodies: list[bytes] = []
    size = work.changes // work.batches
    for at, (table, op, row, missing) in enumerate(changes(work), start=1):
        bodies.append(message(work, table, (op, row, missing), at))
        if op == MOVE:
            old_key = row["o_orderkey"] - work.keys
            pending[table][old_key] = (row | {"o_orderkey": old_key}, True, at)
        pending[table][row["o_orderkey"]] = (row, op == "d", at)
        if at % size and at < work.changes:
            continue
        path = folder / f"messages{len(batches)}.parquet"
        pq.write_table(
            pa.table({"value": pa.array(bodies, pa.binary())}), path, row_group_size=50_000
        )
        batches.append(path)
        bodies = []
        for name, rows in pending.items():
            path = folder / f"typed-{name}-{len(typed[name])}.parquet"
            latest = list(rows.values())
            fields = {
                column: pa.array([row[column] for row, _, _ in latest], ARROW[kind])
                for column, kind in work.types.items()
            }
            fields["is_deleted"] = pa.array([is_deleted for _, is_deleted, _ in latest], pa.bool_())
            orders = (at.to_bytes(32, "big") for _, _, at in latest)
            fields["at"] = pa.array(orders, pa.binary())
            pq.write_table(pa.table(fields), path)
            typed[name].append(path)
            rows.clear()
    return batches, typed


Batch = Callable[[int], None]
"""Applies one batch, by its number."""


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Run it; return wall time and processor time, seconds."""
    started, used = time.monotonic(), processor_seconds()
    run()
    return time.monotonic() - started, processor_seconds() - used


def in_turns(batches: int, *runs: Batch) -> list[list[tuple[float, float]]]:
    """Return the times of each run's batches; the runs alternate, so that all are equally warm."""
    durations: list[list[tuple[float, float]]] = [[] for _ in runs]
    for number in range(batches):
        for run, times in zip(runs, durations, strict=True):
            times.append(timed(lambda run=run, number=number: run(number)))
    return durations


class Bench:
    """One kind of lake in one session."""

    def __init__(self, spark: Any, kind: str, folder: Path) -> None:
        self.spark = spark
        self.kind = kind
        self.folder = folder

    def bare(self, work: Work, typed: dict[str, list[Path]]) -> Batch:
        """Create plain tables; return the function that merges a batch of typed rows into them."""
        lake = open_lake(self.spark, str(self.folder / "bare"), self.kind)
        names = list(work.types)
        for table in typed:
            columns = {name: SPARK[kind] for name, kind in work.types.items()}
            lake.create(f"tables/{table}", columns, {})
        sets = ", ".join(f"t.{name} = s.{name}" for name in names)
        rows = f"({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"

        def batch(number: int) -> None:
            for table, paths in typed.items():
                frame = self.spark.read.parquet(str(paths[number])).drop("at")
                if self.kind == "iceberg":
                    frame = frame.persist()
                frame.createOrReplaceTempView("newer")
                self.spark.sql(
                    f"MERGE INTO {lake.sql(f'tables/{table}')} t USING newer s "
                    "ON t.o_orderkey = s.o_orderkey WHEN MATCHED AND s.is_deleted THEN DELETE "
                    f"WHEN MATCHED THEN UPDATE SET {sets} "
                    f"WHEN NOT MATCHED AND NOT s.is_deleted THEN INSERT {rows}"
                ).collect()
                frame.unpersist()
            if number == 0 and work.rows:
                for n in range(work.tables):
                    self.fill(work, lake, f"{BARE_TABLE}{n}")

        return batch

    def formed(self, work: Work, typed: dict[str, list[Path]]) -> Batch:
        """Return the function that merges a batch as changelane does, with the state columns."""
        lake = open_lake(self.spark, str(self.folder / "formed"), self.kind)
        columns = {name: SPARK[kind] for name, kind in work.types.items()}
        lake.create(ROW_FORM_TABLE, columns | {ORDER: "BINARY", COLUMNS: "MAP<STRING, BINARY>"}, {})
        merge_rule = full_row_merge(("o_orderkey",), tuple(columns))

        def batch(number: int) -> None:
            frame = self.spark.read.parquet(str(typed["orders0"][number]))
            nothing = F.unhex(F.lit(""))
            state = {
                UPSERTED: F.when(F.col("is_deleted"), nothing).otherwise(F.col("at")),
                DEPARTED: F.when(F.col("is_deleted"), F.col("at")).otherwise(nothing),
                LIVE: ~F.col("is_deleted"),
            }
            rows = frame.select(*columns, *(one.alias(name) for name, one in state.items()))
            lake.merge(self.spark, ROW_FORM_TABLE, rows, merge_rule)

        return batch

    def fill(self, work: Work, lake: Any, name: str) -> None:
        """Append a row for every key that a table lacks."""
        current = lake.read(name)
        key = F.col("o_orderkey")
        columns = {
            **{name: F.concat(key.cast("string"), F.lit(f" {name}")) for name in TEXTS},
            "o_orderkey": key,
            "o_custkey": key * 7,
            "o_totalprice": key / 100,
            "o_shippriority": (key % 5).cast("int"),
        }
        if ORDER in current.columns:
            columns[ORDER] = F.lit(current.agg(F.min(ORDER)).first()[0])
            columns[COLUMNS] = F.lit(None).cast("map<string,binary>")
        others = self.spark.range(work.rows).select(F.col("id").alias("o_orderkey"))
        others = others.join(current.select("o_orderkey"), "o_orderkey", "left_anti")
        rows = others.select(*(columns[name].alias(name) for name in current.columns))
        lake.append(self.spark, name, rows)

    def ours(
        self, work: Work, batches: Sequence[Path], schedule: MergeSchedule | None = None
    ) -> list[tuple[float, float]]:
        """Apply batches of messages with changelane; return their times."""
        root = str(self.folder / "ours")
        applier = Applier(self.spark, root, table_format=self.kind)
        dispatcher = None
        if schedule is not None:
            lake = open_lake(self.spark, root, self.kind)
            dispatcher = TableDispatcher(lake, applier, "bench", schedule)
        schemas = {f"shop.public.orders{n}": dict(work.types) for n in range(work.tables)}
        keys = {f"orders{n}": ("o_orderkey",) for n in range(work.tables)}

        is_small = is_small_batch(work.changes // work.batches)

        def batch(number: int) -> None:
            messages = self.spark.read.parquet(str(batches[number]))
            messages = messages.coalesce(1) if is_small else messages
            events = decode(
                messages, "debezium-json", options={"schemas": schemas}, keys=keys, images=False
            )
            marker = Marker("bench", "q", number)
            take = applier.apply if dispatcher is None else dispatcher.apply
            report = take(events, marker, is_small=is_small)
            if report.quarantined or report.failed:
                raise SystemExit(f"some changes were not applied: {report}")

        durations = []
        for number in range(work.batches):
            durations.append(timed(lambda number=number: batch(number)))
            if number == 0 and work.rows:
                lake = open_lake(self.spark, root, self.kind)
                for n in range(work.tables):
                    self.fill(work, lake, f"{LANDED_TABLE}{n}")
                applier.maintenance_scheduler(Maintenance()).after_run(applier.take_event_bounds())
            if work.is_uneven:
                self.memory(f"after batch {number}")
        if work.is_uneven and dispatcher is not None:
            clock, _ = timed(lambda: dispatcher.merge(all_of_them=True))
            print(f"{self.kind}: every table merged from the log {clock:7.1f} s", flush=True)
            self.memory("after the merge")
        return durations

    def memory(self, when: str) -> None:
        """Print the driver's memory after a garbage collection."""
        gc.collect()
        java = self.spark._jvm.java.lang  # noqa: SLF001 - the only way to its memory
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        heap_mb = (runtime.totalMemory() - runtime.freeMemory()) >> 20
        memory = f"{heap_mb:,} MB of Java's heap, {resident_mb():,} MB of Python"
        print(f"{self.kind}: {when}: {memory}", flush=True)


def show(what: str, work: Work, durations: list[tuple[float, float]], base: float | None) -> float:
    """Print changes a second of wall time, without the first batch, which warms up."""
    changes = work.changes / work.batches * (len(durations) - 1)
    clock, processor = (sum(column) for column in zip(*durations[1:], strict=True))
    rate = changes / clock
    ratio = "" if base is None else f"{rate / base:6.2f} x"
    print(
        f"{what:<34} {clock / (len(durations) - 1):7.1f} s a batch  {rate:>9,.0f} changes/s "
        f"{processor / (len(durations) - 1):7.1f} s of processors {ratio}",
        flush=True,
    )
    return rate


def main() -> None:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=5, help="the first one warms up")
    parser.add_argument("--lake", choices=["delta", "iceberg"], action="append")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the part load")
    arguments = parser.parse_args()
    if "load" in arguments.parts:  # before Spark starts here
        arguments.parts.remove("load")
        load.measure(arguments.rows, arguments.lake or ("iceberg", "delta"))
        if not arguments.parts:
            return
    count = arguments.changes
    works = {
        "full": Work("full images", count),
        "partial": Work("updates lack columns", count, is_partial=True),
        "full2": Work("full images, 2 million rows", count, keys=2_000_000, rows=2_000_000),
        "partial2": Work(
            "updates lack columns, 2 million rows",
            count,
            is_partial=True,
            keys=2_000_000,
            rows=2_000_000,
        ),
        "wide100": Work("100 columns", count // 5, columns=100),
        "wide300": Work("300 columns", count // 20, columns=300),
        "thousand": Work(
            "1,000 tables of uneven heat", count // 2, tables=1000, keys=3000, is_uneven=True
        ),
        **{
            f"small{millions}": Work(
                f"1,000 changes of a table of {millions} million rows",
                1000 * arguments.batches,
                keys=millions * 1_000_000,
                rows=millions * 1_000_000,
            )
            for millions in (1, 2, 10, 40)
        },
        "seven": Work(
            "7 tables of 100,000 rows, 100 changes a second, a batch in ten seconds",
            1000 * arguments.batches,
            tables=7,
            keys=100_000,
            rows=100_000,
        ),
        "many": Work("100 tables, 1,000 changes each", 500_000, tables=100, keys=3000),
    }
    works["moved10"] = works["small10"]._replace(
        name="1,000 changes of 10 million rows, ten of which change a key", moves=100
    )
    spark = local_spark("delta", "iceberg")
    for name in arguments.parts or works:
        work = works[name]._replace(batches=arguments.batches)
        source = Path(tempfile.mkdtemp())
        batches, typed = written(work, source)
        size = sum(path.stat().st_size for path in batches) // work.changes
        print(f"\n{name}: {work.name}, {work.changes:,} changes (about {size} B in Parquet)")
        for kind in arguments.lake or ("iceberg", "delta"):
            folder = Path(tempfile.mkdtemp())
            bench = Bench(spark, kind, folder)
            try:
                base = None
                if not work.is_uneven:
                    runs = [bench.bare(work, typed)]
                    if name == "full":
                        runs.append(bench.formed(work, typed))
                    bare, *formed = in_turns(work.batches, *runs)
                    base = show(f"{kind}: bare MERGE", work, bare, None)
                    for durations in formed:
                        show(f"{kind}: row form of the MERGE", work, durations, base)
                if not work.is_uneven:
                    show(f"{kind}: messages to table", work, bench.ours(work, batches), base)
                if name == "many" or name.startswith("small"):
                    shutil.rmtree(folder / "ours", ignore_errors=True)
                    later = MergeSchedule(is_deferred=True, events=1 << 60, seconds=1e9)
                    durations = bench.ours(work._replace(rows=0), batches, later)
                    show(f"{kind}: messages to the log", work, durations, None)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(source, ignore_errors=True)


if __name__ == "__main__":
    main()
