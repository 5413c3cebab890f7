# SPDX-License-Identifier: Apache-2.0
"""Single tables of a real MariaDB that are read while it changes: they equal the source."""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from captured_tables import SMALL_CHUNKS, CapturedTables
from mariadb_server import MariadbServer
from snapshot_records import lake_rows
from waiting import wait_until

from changelane.capture.requested_tables import request_tables
from changelane.capture.snapshot.plan import SnapshotProgress
from changelane.capture.snapshot.table_requests import cancel_request, read_requests
from changelane.errors import ConfigError
from changelane.pipeline.mysql_source import MariadbSource
from changelane.schema import TableId

HOSTILE: Final = "ne`w.it's; é"
WAIT_S: Final = 240.0
COLUMNS: Final = ("shop", "id", "v", "note")


class Shop(CapturedTables):
    """A database, and captures of it."""

    def __init__(self, server: MariadbServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        source = MariadbSource(
            **server.login,
            database=database,
            sslmode="disable",
            tables=[f"{database}.*"],
            segments=str(folder / "log"),
            **SMALL_CHUNKS,
        )
        super().__init__(source, folder, WAIT_S)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.server.run(*statements, database=self.database)

    def make(self, name: str) -> None:
        quoted = f"`{name.replace('`', '``')}`"
        self.run(
            f"CREATE TABLE {quoted} (shop varchar(5) COLLATE utf8mb4_german2_ci, id int, v int, "
            "note text, PRIMARY KEY (shop, id))",
            f"INSERT INTO {quoted} SELECT s, seq, 0, concat('n', seq) FROM seq_1_to_200 "
            "JOIN (SELECT 'a' s UNION ALL SELECT 'B' UNION ALL SELECT 'ß') t",
        )

    @contextmanager
    def changing(self, *names: str) -> Iterator[None]:
        """Change rows until the end."""
        stop = threading.Event()
        choose = random.Random(7)
        statements = (
            "UPDATE {0} SET v = v + 1 WHERE id = {1} AND shop <> 'ß'",
            "DELETE FROM {0} WHERE id = {1}",
            "UPDATE IGNORE {0} SET id = id + 1000 WHERE id = {1}",
            "REPLACE INTO {0} VALUES ('c', {1}, 1, NULL)",
        )

        def work() -> None:
            with self.server.connect(self.database) as connection, connection.cursor() as cursor:
                while not stop.wait(choose.random() * 0.05):
                    quoted = f"`{choose.choice(names).replace('`', '``')}`"
                    cursor.execute(choose.choice(statements).format(quoted, choose.randrange(200)))
                    connection.commit()

        with ThreadPoolExecutor(1) as pool:
            worker = pool.submit(work)
            try:
                yield
            finally:
                stop.set()
                worker.result()

    def check(self, name: str) -> None:
        quoted = f"`{name.replace('`', '``')}`"
        rows = Counter(self.run(f"SELECT {', '.join(COLUMNS)} FROM {quoted}"))
        assert lake_rows(self.log, TableId(self.database, None, name), COLUMNS) == rows, name


@pytest.fixture
def shop(mariadb_server: MariadbServer, tmp_path: Path) -> Iterator[Shop]:
    with mariadb_server.new_database("parts") as database:
        yield Shop(mariadb_server, database, tmp_path)


def test_tables_that_the_capture_newly_covers_are_read_while_rows_change(shop: Shop) -> None:
    """Created before the first capture without a match, or while the capture runs."""
    shop.make("orders")
    shop.make("other")
    first = msgspec.structs.replace(shop.source, tables=[f"{shop.database}.orders"])
    with shop.captured(first, is_until_now=True) as capture:
        capture.wait_until_now()
    with shop.changing("orders", "other"), shop.captured(is_until_now=True) as capture:
        shop.make(HOSTILE)
        capture.wait_until_now()
        assert shop.reads_of("other") > 0
        with shop.changing(HOSTILE):
            request_tables(
                shop.source, [f"{shop.database}.`{HOSTILE.replace('`', '``')}`"], kind="add"
            )
            request_tables(
                shop.source, ["orders"], kind="redo", lower=["a", "50"], upper=["b", "90"]
            )
            shop.wait_for_requests(capture)
            time.sleep(1)
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    for name in ("orders", "other", HOSTILE):
        shop.check(name)
    assert 600 < shop.reads_of("orders") < 600 + 400, "only the range was read again"

    shop.run("CREATE TABLE loose (n int)", "INSERT INTO loose VALUES (1)")
    with pytest.raises(ConfigError, match="--new-snapshot"), shop.captured(is_until_now=True):
        pass
    with contextlib.suppress(FileNotFoundError):
        assert shop.log.folder.names("snapshot/tables") == []


@pytest.mark.long
def test_a_snapshot_waits_for_prepared_transactions(shop: Shop) -> None:
    """The log has their changes before others see them: rows at a later position are older."""
    shop.make("orders")
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
        with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
            for statement in (
                "XA START 'shop'",
                "UPDATE orders SET v = 99 WHERE id = 1",
                "DELETE FROM orders WHERE id = 2",
                "XA END 'shop'",
                "XA PREPARE 'shop'",
            ):
                cursor.execute(statement)
            (request,) = request_tables(shop.source, ["orders"], kind="redo").requests
            progress = SnapshotProgress(shop.log.folder, request.plan_name)
            deadline = time.monotonic() + WAIT_S
            while progress.plan() is None:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            time.sleep(8)
            assert read_requests(shop.log.folder) == [request], "it did not wait"
            cursor.execute("XA COMMIT 'shop'")
        shop.wait_for_requests(capture)
        # Debezium ends the transaction with the next one
        shop.run("UPDATE orders SET v = 5 WHERE id = 3")
        capture.wait_until_now()
    shop.check("orders")


@pytest.mark.long
def test_a_cancelled_snapshot_leaves_no_row(shop: Shop) -> None:
    shop.make("orders")
    shop.source = msgspec.structs.replace(shop.source, snapshot_chunk_rows=5)
    folder = shop.log.folder
    with shop.captured() as capture:
        capture.wait_until_now()
        (request,) = request_tables(shop.source, ["orders"], kind="redo").requests
        progress = SnapshotProgress(folder, request.plan_name)

        def complete_count() -> int:
            plan = progress.plan()
            return 0 if plan is None else len(progress.complete_numbers(plan))

        wait_until(lambda: complete_count() >= 2, WAIT_S, shop.notes)
        cancel_request(folder, request)
        wait_until(lambda: progress.plan() is None, WAIT_S, shop.notes)
        assert shop.reads_of("orders") == 600, "rows of an incomplete snapshot are visible"

        # another one waits for a prepared transaction
        with shop.server.connect(shop.database) as connection, connection.cursor() as cursor:
            for statement in ("XA START 'x'", "UPDATE orders SET v = 9", "XA END 'x'"):
                cursor.execute(statement)
            cursor.execute("XA PREPARE 'x'")
            (waiting,) = request_tables(shop.source, ["orders"], kind="redo").requests
            cancelled = f"{shop.database}.orders is cancelled"
            started = SnapshotProgress(folder, waiting.plan_name)
            wait_until(lambda: started.plan() is not None, WAIT_S, shop.notes)
            cancel_request(folder, waiting)
            wait_until(
                lambda: sum(cancelled in note for note in shop.notes) >= 2, WAIT_S, shop.notes
            )
            cursor.execute("XA COMMIT 'x'")
        request_tables(shop.source, ["orders"], kind="redo", lower=["a", "1"], upper=["a", "20"])
        shop.wait_for_requests(capture)
        shop.run("UPDATE orders SET v = 5 WHERE id = 3")  # ends the transaction for Debezium
        capture.wait_until_now()
    assert 600 < shop.reads_of("orders") < 700
    shop.check("orders")
    names = {s.name for manifest in shop.log.manifests_after(0) for s in manifest.segments}
    assert set(folder.names("segments")) == names
