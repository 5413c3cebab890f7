# SPDX-License-Identifier: Apache-2.0
"""Single tables of a real PostgreSQL that are read while it changes: they equal the source."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest

pytest.importorskip("jpype", reason="jpype1 is not installed: changelane[capture]")

from captured_tables import SMALL_CHUNKS, CapturedTables
from postgres_server import PostgresServer
from snapshot_processes import kill
from snapshot_records import lake_rows
from waiting import wait_until

from changelane.capture.database_findings import database_findings
from changelane.capture.manifest import CapturedRecord
from changelane.capture.requested_tables import request_tables
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.plan import SnapshotProgress
from changelane.capture.snapshot.table_requests import (
    cancel_request,
    read_requests,
    state_of,
)
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError, ConfigError
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId

HOSTILE: Final = "it's n`e.é; \\"
WAIT_S: Final = 120.0


class Shop(CapturedTables):
    """A database, and captures of it."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server = server
        self.database = database
        source = PostgresSource(
            **server.login_of(database),
            tables=["public.*"],
            segments=str(folder / "log"),
            **SMALL_CHUNKS,
        )
        super().__init__(source, folder, WAIT_S)

    def execute(self, *statements: str) -> None:
        with self.server.connect(self.database) as connection:
            for statement in statements:
                connection.execute(statement)

    def source_rows(self, name: str, columns: str) -> Counter[tuple[Any, ...]]:
        with self.server.connect(self.database) as connection:
            query = f'SELECT {columns} FROM "{name}"'
            return Counter(connection.execute(query.encode()).fetchall())

    def lake_rows(
        self, name: str, columns: str, is_lost: Callable[[CapturedRecord], bool] = lambda _: False
    ) -> Counter[tuple[Any, ...]]:
        table = TableId(self.database, "public", name)
        return lake_rows(self.log, table, columns.split(", "), is_lost)


@pytest.fixture
def shop(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Shop]:
    with postgres_server.new_database("parts") as database:
        yield Shop(postgres_server, database, tmp_path)
        with postgres_server.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = %s",
                [database],
            )


def make_orders(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE orders (shop text, id int, v int, note text, PRIMARY KEY (shop, id))",
        "INSERT INTO orders SELECT s, n, 0, 'n' || n FROM generate_series(1, 200) n, "
        "unnest(ARRAY['a', 'B', 'ä']) s",
    )


def make_documents(shop: Shop, name: str = "documents", count: int = 300) -> None:
    shop.execute(
        f'CREATE TABLE "{name}" (id int PRIMARY KEY, v int, body text)',
        f'ALTER TABLE "{name}" ALTER COLUMN body SET STORAGE EXTERNAL',
        f'INSERT INTO "{name}" SELECT n, 0, repeat(md5(n::text), 80) '
        f"FROM generate_series(1, {count}) n",
    )


def change_documents(connection: "psycopg.Connection[Any]", name: str, row: int) -> None:
    """Change a row without its value out of line: its number, its key, or all of it."""
    match row % 5:
        case 0:
            connection.execute(f'UPDATE "{name}" SET id = id + 10000 WHERE id = {row}')
        case 1:
            connection.execute(f'DELETE FROM "{name}" WHERE id = {row}')
        case 2:
            connection.execute(
                f"INSERT INTO \"{name}\" VALUES ({row + 5000}, 1, repeat('z', 3000))"
            )
        case _:
            connection.execute(
                f'UPDATE "{name}" SET v = v + 1 WHERE id BETWEEN {row} AND {row} + 9'
            )


def change_orders(connection: "psycopg.Connection[Any]", row: int) -> None:
    match row % 4:
        case 0:
            connection.execute("UPDATE orders SET id = id + 1000 WHERE id = %s", [row])
        case 1:
            connection.execute("DELETE FROM orders WHERE id = %s AND shop = 'B'", [row])
        case _:
            connection.execute("UPDATE orders SET v = v + 1 WHERE id = %s", [row])


@contextmanager
def changing(
    shop: Shop, change: Callable[["psycopg.Connection[Any]", int], None], count: int = 300
) -> Iterator[None]:
    """Change rows until the end, in transactions of a few changes."""
    stop = threading.Event()
    choose = random.Random(count)

    def work() -> None:
        with shop.server.connect(shop.database) as connection:
            while not stop.wait(choose.random() * 0.05):
                with connection.transaction():
                    for _ in range(choose.randrange(1, 4)):
                        try:
                            with connection.transaction():
                                change(connection, choose.randrange(1, count))
                        except psycopg.errors.UniqueViolation:
                            pass

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            yield
        finally:
            stop.set()
            worker.result()


def test_a_range_of_a_table_is_read_again_and_new_tables_are_added_while_rows_change(
    shop: Shop,
) -> None:
    make_orders(shop)
    columns = "shop, id, v, note"
    with shop.captured() as capture:
        capture.wait_until_now()
        first_load = shop.log.newest()
        assert first_load is not None
        make_documents(shop, HOSTILE, 150)

        def change(connection: "psycopg.Connection[Any]", row: int) -> None:
            change_orders(connection, row)
            change_documents(connection, HOSTILE, row)

        with changing(shop, change, 150):
            request_tables(shop.source, [f'public."{HOSTILE}"'], kind="add")
            request_tables(
                shop.source, ["orders"], kind="redo", lower=["a", "50"], upper=["ä", "120"]
            )
            with pytest.raises(ConfigError, match="is not complete yet"):
                request_tables(shop.source, ["orders"], kind="redo")
            shop.wait_for_requests(capture)
            time.sleep(1)
        capture.wait_until_now()
    assert shop.reads_of("orders") < 600 + 450, "only the range was read again"
    assert sum("were read" in note for note in shop.notes) == 2
    for name, texts in (("orders", columns), (HOSTILE, "id, v, body")):
        assert shop.lake_rows(name, texts) == shop.source_rows(name, texts), name

    def is_lost(record: CapturedRecord) -> bool:
        """A tenth of the first load never reached the lake."""
        text = record.value or ""
        return '"op":"r"' in text and '"snapshot":"incremental"' not in text and '5,"v"' in text

    damaged = shop.lake_rows("orders", columns, is_lost)
    missing = shop.source_rows("orders", columns) - damaged
    assert missing, "rows outside of the range stay lost"
    with shop.server.connect(shop.database) as connection:
        inside = connection.execute(
            "SELECT shop, id FROM orders WHERE (shop, id) BETWEEN ('a', 50) AND ('ä', 120)"
        ).fetchall()
    assert not {row[:2] for row in missing} & set(inside)


def complete_chunks(shop: Shop) -> set[int]:
    """The complete chunks of the only request."""
    for request in read_requests(shop.log.folder):
        progress = SnapshotProgress(shop.log.folder, request.plan_name)
        plan = progress.plan()
        return set() if plan is None else progress.complete_numbers(plan)
    return set()


@pytest.mark.long
def test_a_killed_capture_continues_a_snapshot_at_its_chunk(shop: Shop, tmp_path: Path) -> None:
    shop.source = msgspec.structs.replace(shop.source, snapshot_chunk_rows=20)
    make_orders(shop)
    shop.execute(
        "INSERT INTO orders SELECT 'c', n, 0, repeat('x', 200) FROM generate_series(1, 6000) n"
    )
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    shop.execute("CREATE TABLE idle (id int PRIMARY KEY)")
    request_tables(shop.source, ["orders"], kind="redo")
    file = tmp_path / "shop.yaml"
    options = {**msgspec.to_builtins(shop.source), "password": "${PGPASSWORD_OF_TEST}"}
    del options["connect_auth"]  # empty; a file names a variable, or leaves it out
    sink = {"type": "delta", "path": str(tmp_path / "lake")}
    file.write_bytes(msgspec.json.encode({"name": "shop", "source": options, "sink": sink}))
    environment = {**os.environ, "PGPASSWORD_OF_TEST": shop.server.password}

    def started() -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "changelane", "capture", str(file)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)

    with changing(shop, change_orders):
        count = 0
        for more in (5, 20):
            process = started()
            deadline = time.monotonic() + WAIT_S
            while len(numbers := complete_chunks(shop)) < count + more:
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            kill(process)
            assert len(complete_chunks(shop)) >= len(numbers), "it began anew"
            count = len(complete_chunks(shop))
        with shop.captured() as capture:
            shop.wait_for_requests(capture)
            capture.wait_until_now()
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    columns = "shop, id, v, note"
    assert shop.lake_rows("orders", columns) == shop.source_rows("orders", columns)
    assert shop.reads_of("orders") < 2 * 6600 + 400, "complete chunks were read again"
    names = set(shop.log.folder.names("segments"))
    manifests = list(shop.log.manifests_after(0))
    assert names == {segment.name for manifest in manifests for segment in manifest.segments}
    assert shop.log.folder.names("snapshot/tables") == []


def note_count(shop: Shop, text: str) -> int:
    return sum(text in note for note in shop.notes)


@pytest.mark.long
def test_a_cancelled_snapshot_leaves_no_row_and_one_of_a_dropped_table_fails(shop: Shop) -> None:
    shop.source = msgspec.structs.replace(shop.source, snapshot_chunk_rows=5)
    make_orders(shop)
    folder = shop.log.folder
    with shop.captured() as capture:
        capture.wait_until_now()
        (request,) = request_tables(shop.source, ["orders"], kind="redo").requests
        wait_until(lambda: len(complete_chunks(shop)) >= 2, WAIT_S)
        cancel_request(folder, request)
        wait_until(lambda: SnapshotProgress(folder, request.plan_name).plan() is None, WAIT_S)
        assert state_of(folder, request) == "cancelled"
        assert shop.reads_of("orders") == 600, "rows of an incomplete snapshot are visible"
        capture.check()

        # another one waits for a transaction that writes to the table
        with shop.server.connect(shop.database) as connection, connection.transaction():
            connection.execute("UPDATE orders SET v = v + 1 WHERE id = 7")
            (waiting,) = request_tables(shop.source, ["orders"], kind="redo").requests
            wait_until(lambda: note_count(shop, "orders are read") >= 2, WAIT_S, shop.notes)
            cancel_request(folder, waiting)
            wait_until(lambda: note_count(shop, "orders is cancelled") >= 2, WAIT_S, shop.notes)
        request_tables(shop.source, ["orders"], kind="redo", lower=["a", "1"], upper=["a", "20"])
        shop.wait_for_requests(capture)
        capture.wait_until_now()
    assert 600 < shop.reads_of("orders") < 700
    columns = "shop, id, v, note"
    assert shop.lake_rows("orders", columns) == shop.source_rows("orders", columns)
    names = set(folder.names("segments"))
    assert names == {s.name for manifest in shop.log.manifests_after(0) for s in manifest.segments}

    (dropped,) = request_tables(shop.source, ["orders"], kind="redo").requests
    shop.execute("CREATE TABLE other (id int PRIMARY KEY)", "DROP TABLE orders")
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
        (failed,) = read_requests(folder)
        assert failed.error == "the table was dropped or renamed at the source"
        # a table of the same name is another one, which the next capture reads
        make_orders(shop)
    assert dropped.id == failed.id
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    assert read_requests(folder) == []
    assert shop.lake_rows("orders", columns) == shop.source_rows("orders", columns)


@pytest.mark.long
def test_new_tables_are_read_when_a_capture_starts_and_refused_without_a_key(shop: Shop) -> None:
    make_orders(shop)
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    make_documents(shop, count=200)
    stopping = msgspec.structs.replace(shop.source, new_tables="stop")
    errors = [f for f in database_findings(stopping) if f.defect == "new_table"]
    assert "`changelane snapshot add PIPELINE.yaml public.documents`" in errors[0].text()
    assert "new_table" not in {finding.defect for finding in database_findings(shop.source)}

    def change(connection: "psycopg.Connection[Any]", row: int) -> None:
        change_documents(connection, "documents", row)

    with changing(shop, change), shop.captured(is_until_now=True) as capture:
        time.sleep(2)
        capture.wait_until_now()
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    columns = "id, v, body"
    assert shop.lake_rows("documents", columns) == shop.source_rows("documents", columns)
    assert shop.reads_of("orders") == 600, "no other table is read again"

    shop.execute(
        "CREATE TABLE loose (n int)",
        "ALTER TABLE loose REPLICA IDENTITY FULL",
        "INSERT INTO loose VALUES (1)",
        f"ALTER PUBLICATION {shop.source.publication_name} ADD TABLE loose",
    )
    for kind in ("add", "redo"):
        with pytest.raises(ChangelaneError, match="has no key, so its rows would be doubled"):
            request_tables(shop.source, ["loose"], kind=kind)
    with pytest.raises(ConfigError, match="--new-snapshot"), shop.captured():
        pass


@pytest.mark.long
def test_values_do_not_depend_on_settings_of_the_database(shop: Shop) -> None:
    """The server writes its log with the settings of the session that reads it."""
    shop.execute(
        "CREATE TABLE kinds (id int PRIMARY KEY, body bytea, span interval, digits float8)",
        f"ALTER DATABASE {shop.database} SET bytea_output = escape",
        f"ALTER DATABASE {shop.database} SET intervalstyle = sql_standard",
        f"ALTER DATABASE {shop.database} SET extra_float_digits = -5",
        f"ALTER DATABASE {shop.database} SET datestyle = 'SQL, DMY'",
        "INSERT INTO kinds VALUES (1, 'abcd', '1 mon -3 days', 0.1::float8 + 0.2)",
    )
    with shop.captured() as capture:
        capture.wait_until_now()
        shop.execute("INSERT INTO kinds SELECT 2, body, span, digits FROM kinds")
        capture.wait_until_now()
        expected = shop.lake_rows("kinds", "body, span, digits")
        ((body, _, digits),) = expected
        assert (body, digits) == (b"abcd", 0.1 + 0.2)
        assert expected.total() == 2, "the first load and the log have other values"
        request_tables(shop.source, ["kinds"], kind="redo")
        shop.wait_for_requests(capture)
    assert shop.lake_rows("kinds", "body, span, digits") == expected
    assert "1M-3D" in str(expected)


@pytest.mark.long
def test_a_range_of_a_new_table_is_refused_or_becomes_the_whole_table(shop: Shop) -> None:
    """The rows outside of it would be missing for ever: the log has the table from then on."""
    make_orders(shop)
    with shop.captured(is_until_now=True) as capture:
        capture.wait_until_now()
    columns = "shop, id, v, note"
    # the request is older than the table of the same name
    request_tables(shop.source, ["orders"], kind="redo", lower=["a", "50"], upper=["a", "60"])
    shop.execute("DROP TABLE orders")
    make_orders(shop)
    shop.execute("UPDATE orders SET id = id + 5000")
    with shop.captured() as capture:
        shop.wait_for_requests(capture)
        capture.wait_until_now()
        assert not shop.source_rows("orders", columns) - shop.lake_rows("orders", columns)
        make_documents(shop, count=20)
        with pytest.raises(ConfigError, match="documents was not captured until now, or created"):
            request_tables(shop.source, ["documents"], kind="redo", lower=["5"])
        (request,) = request_tables(shop.source, ["documents"], kind="redo").requests
        assert request.kind == "add"
        shop.wait_for_requests(capture)
        capture.wait_until_now()
    columns = "id, v, body"
    assert shop.lake_rows("documents", columns) == shop.source_rows("documents", columns)


@pytest.mark.long
def test_rows_of_a_transaction_from_before_the_publication_had_the_table_are_read(
    shop: Shop,
) -> None:
    """The log does not have them: the snapshot waits for the transaction."""
    make_orders(shop)
    with shop.captured() as capture:
        capture.wait_until_now()
        make_documents(shop, count=20)
        with shop.server.connect(shop.database) as connection:
            with connection.transaction():
                connection.execute("INSERT INTO documents VALUES (1000, 0, 'before')")
                (request,) = request_tables(shop.source, ["documents"], kind="add").requests
                deadline = time.monotonic() + WAIT_S
                while not any("documents are read" in note for note in shop.notes):
                    assert time.monotonic() < deadline
                    time.sleep(0.1)
                time.sleep(2)
                progress = SnapshotProgress(shop.log.folder, request.plan_name)
                assert progress.plan() is None, "it did not wait"
                connection.execute("UPDATE documents SET v = 5 WHERE id < 10")
            connection.execute("UPDATE documents SET v = 6 WHERE id > 15")
        shop.wait_for_requests(capture)
        shop.execute("DELETE FROM documents WHERE id = 7")
        capture.wait_until_now()
    columns = "id, v, body"
    assert shop.lake_rows("documents", columns) == shop.source_rows("documents", columns)


@pytest.mark.long
def test_a_table_is_read_again_into_an_object_store(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto")
    from s3_server import BUCKET, s3_server

    make_orders(shop)
    with s3_server() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        address, engine = f"s3://{BUCKET}/parts", str(tmp_path / "engine")
        shop.source = msgspec.structs.replace(shop.source, segments=address, engine_folder=engine)
        shop.log = CaptureLog(folder_of(address))
        with shop.captured() as capture:
            capture.wait_until_now()
            with changing(shop, change_orders):
                request_tables(shop.source, ["orders"], kind="redo", upper=["B"])
                with pytest.raises(ConfigError, match="is not complete yet"):
                    request_tables(shop.source, ["orders"], kind="redo")
                shop.wait_for_requests(capture)
            capture.wait_until_now()
        columns = "shop, id, v, note"
        assert shop.lake_rows("orders", columns) == shop.source_rows("orders", columns)
        assert 600 < shop.reads_of("orders") < 1200
        assert shop.log.folder.names("repairs") == []
