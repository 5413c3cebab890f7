"""What a run tells while it works, in its three forms, without Spark."""

import contextlib
import datetime as dt
import io
import json
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.cells import cell_len
from rich.console import Console

from changelane.capture.capture_figures import CaptureFigures, read_capture_figures
from changelane.capture.captured_server import LogLag
from changelane.capture.manifest import CapturedRecord
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.storage import LocalFolder
from changelane.cli.run import _print_summary
from changelane.cli.run_display import LiveLine, RunDisplay
from changelane.cli.run_metrics import Totals, figures
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.options import Options
from changelane.spark.rows.batch_stats import APPLIED_BEFORE, BatchReport, TableReport
from changelane.spark.run.repeated_rows import with_repeat_note
from changelane.spark.run.tables import RunReport
from changelane.spark.sinks.report import DeliveryReport


class Clock:
    """A clock that stands until it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def batch(**more: Any) -> BatchReport:
    told: dict[str, Any] = {
        "batch": 7,
        "events": 300,
        "messages": 400,
        "lag": {"shop.orders": {0: 5, 3: 20_000}, "shop.log": {0: 0}},
        "seconds": 4.0,
        "quarantined": {"malformed_json": 2},
        "tables": [
            TableReport("shop.orders", "/lake/orders", 200),
            TableReport("shop.orders", "/lake/orders", 50),
            TableReport("shop.log", "/lake/log", 10, APPLIED_BEFORE, warning="once"),
            TableReport("shop.bad", "", 20, "wrong", "id"),
            TableReport("shop.refused", "", 20, "no_key: ..."),
        ],
    }
    return BatchReport(**told | more)


def sent(**more: Any) -> DeliveryReport:
    told: dict[str, Any] = {"batch": 1, "messages": 100, "events": 90, "written": 80}
    return DeliveryReport(**told | {"lag": {"in": {0: 1}}, "seconds": 1.0} | more)


@contextlib.contextmanager
def watched(clock: Clock | None = None, **more: Any) -> Iterator[RunDisplay]:
    with RunDisplay("shop", Options(**more), clock=clock or time.monotonic) as display:
        display.start()
        yield display


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_where_stderr_is_no_terminal_each_batch_is_a_line_of_json_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with watched(clock) as display:
        display.show_note("a note \x1b[2J")
        clock.now += 10
        tables = [*batch().tables, TableReport("shop.orders", "/lake", possible_duplicates=3)]
        display.show_batch(batch(tables=tables))
        clock.now += 2
        display.show_batch(
            BatchReport(7, tables=[TableReport("shop.log", "/lake/log", 8)], is_merge=True)
        )
        clock.now += 2
        display.show_batch(batch(batch=8, messages=None, lag=None, seconds=0.5))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("changelane: a note \\x1b[2J\n")
    first, merge, second = lines(err)
    assert (first["pipeline"], first["batch"], first["seconds"]) == ("shop", 7, 4.0)
    assert (first["messages_in"], first["events"], first["messages_out"]) == (400, 300, None)
    assert first["lag"] == {"shop.orders": {"0": 5, "3": 20_000}, "shop.log": {"0": 0}}
    assert first["quarantined"] == {"malformed_json": 2}
    assert (first["warnings"], merge["warnings"]) == ({"shop.log": "once"}, {})
    # neither a table that held the batch, nor one that failed, nor one that refused it
    assert first["tables"] == {"shop.orders": 250}
    assert (first["possible_duplicates"], second["possible_duplicates"]) == ({"shop.orders": 3}, {})
    # a second since the batch before, or the start
    assert (first["in_per_s"], first["out_per_s"]) == (40.0, 25.0)
    assert (merge["is_merge"], merge["in_per_s"], merge["tables"]) == (True, 0.0, {"shop.log": 8})
    # a merge is no batch: 4 s have passed; lines of files are counted by their events
    assert (second["messages_in"], second["in_per_s"], second["lag"]) == (None, 75.0, None)


def test_for_topics_the_sent_messages_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with watched(clock) as display:
        clock.now += 2
        display.show_batch(sent())
    (told,) = lines(capsys.readouterr().err)
    assert (told["messages_in"], told["messages_out"], told["tables"]) == (100, 80, {})
    assert (told["in_per_s"], told["out_per_s"]) == (50.0, 40.0)


def live(*reports: Any, clock: Clock) -> LiveLine:
    total = Totals()
    line = LiveLine("shop", lambda: total, Console(file=io.StringIO()), clock)
    for report in reports:
        clock.now += 10
        one = figures("shop", report, dt.datetime.now(dt.UTC), 10)
        total = total.plus(one)
        line.show_batch(one)
    return line


def test_the_live_line_is_never_longer_than_the_terminal() -> None:
    clock = Clock()
    line = live(batch(), clock=clock)
    clock.now += 3
    assert line.line(200) == (
        "shop  in 40/s  out 25/s  20,005 behind  (shop.orders-3: 20,000)  1 table  2 quarantined  "
        "batch 7, 3 s ago  (400 messages in 4.0 s)"
    )
    assert line.line(46) == "shop  in 40/s  out 25/s  20,005 behind"
    assert line.line(54) == "shop  in 40/s  out 25/s  20,005 behind  2 quarantined"
    for width in range(1, 200):
        assert cell_len(line.line(width)) <= max(width, len("shop"))


def test_rates_are_those_of_the_last_batch_and_its_age_is_shown() -> None:
    clock = Clock()
    line = live(sent(lag={"in": {0: 0}}), clock=clock)
    assert line.line(60) == "shop  in 10/s  out 8.0/s  0 behind  batch 1, 0 s ago"
    clock.now += 100
    assert line.line(60) == "shop  in 10/s  out 8.0/s  0 behind  batch 1, 100 s ago"


def test_the_live_line_names_the_step_of_the_batch_under_way() -> None:
    clock = Clock()
    line = live(clock=clock)
    line.on_step("reading")
    clock.now += 5
    line.on_step("table 3 of 6")
    clock.now += 7
    assert line.line(80) == "shop  table 3 of 6, 12 s"
    total = live(batch(), clock=clock)
    total.on_step("reading")
    clock.now += 3
    assert total.line(60) == "shop  reading, 3 s  in 40/s  out 25/s  20,005 behind"
    total.show_batch(figures("shop", batch(), dt.datetime.now(dt.UTC), 10))
    assert "reading" not in total.line(200)


def test_the_live_line_before_the_first_batch() -> None:
    clock = Clock()
    line = live(clock=clock)
    clock.now += 12
    assert line.line(80) == "shop  no batch yet, 12 s"


def test_names_cannot_steer_the_terminal_and_wide_ones_fit() -> None:
    clock = Clock()
    hostile = batch(lag={"\x1b]0;x\x07表" * 3: {0: 1}})
    line = live(hostile, clock=clock)
    assert "\x1b" not in line.line(300)
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    console.print(line)
    assert cell_len(console.file.getvalue().rstrip("\n")) <= 40  # type: ignore[attr-defined]


def scraped(address: str) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_counts_lag_tables_and_what_was_set_aside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with watched(metrics_port=0) as display:
        address = capsys.readouterr().err.split()[-1]
        assert address.startswith("http://127.0.0.1:")
        before = scraped(address)
        assert before["changelane_events_total",] == 0
        assert ("changelane_messages_in_total",) not in before
        display.show_batch(batch())
        twice = TableReport("shop.log", "/lake/log", possible_duplicates=4)
        display.show_batch(batch(batch=8, lag={"shop.orders": {0: 1}}, tables=[twice, twice]))
        hostile = 'a"b\\c\n{d}'
        display.show_batch(BatchReport(8, tables=[TableReport(hostile, "/x", 3)], is_merge=True))
        told = scraped(address)
    assert told["changelane_pipeline_info", "shop"] == 1
    assert told["changelane_batch_seconds_count",] == 2
    assert told["changelane_batch_seconds_sum",] == 8.0
    assert told["changelane_messages_in_total",] == 800
    assert told["changelane_events_total",] == 600
    assert ("changelane_messages_out_total",) not in told
    assert told["changelane_table_events_total", "shop.orders"] == 250
    assert told["changelane_table_events_total", hostile.replace("\n", "\\n")] == 3
    assert told["changelane_possible_duplicates_total", "shop.log"] == 8
    assert told["changelane_quarantined_total", "malformed_json"] == 4
    # lag is that behind the newest batch, and partitions that are gone are gone
    lag = {place: value for place, value in told.items() if place[0] == "changelane_lag"}
    assert lag == {("changelane_lag", "0", "shop.orders"): 1}
    assert abs(told["changelane_last_batch_timestamp_seconds",] - time.time()) < 60
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)


def test_prometheus_reads_the_figures_of_a_capture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    now_ms = int(time.time() * 1000)
    log = LocalFolder(tmp_path / "log")
    writer = SegmentWriter(log, tmp_path / "spool")
    for number in range(5):
        writer.append(CapturedRecord("shop.public.t", str(number), "{}"))
    writer.publish({"lsn": 5, "ts_usec": (now_ms - 2000) * 1000})
    writer.close()
    lag = LogLag(lag_bytes=70, retained_bytes=90, headroom_bytes=0, headroom_s=7.5, slot="shop")

    def read_lag(_offset: object) -> LogLag:
        if is_down:
            raise UnreachableError("the server does not answer")
        return lag

    def read() -> CaptureFigures:
        return read_capture_figures(CaptureLog(log), consumer="shop", read_lag=read_lag)

    for is_down in (False, True):
        with RunDisplay("shop", Options(metrics_port=0), read_capture=read) as display:
            address = capsys.readouterr().err.split()[-1]
            deadline = time.monotonic() + 30
            name = "changelane_capture_server_up"
            while (name,) not in (metrics := scraped(address)) and time.monotonic() < deadline:
                time.sleep(0.02)
            display.show_batch(batch())
        assert metrics[name,] == (not is_down)
        assert metrics["changelane_capture_records_total",] == 5
        assert metrics["changelane_capture_pending_records",] == 5
        assert 2 <= metrics["changelane_capture_publish_delay_seconds",] < 60
        assert 0 <= metrics["changelane_capture_manifest_age_seconds",] < 60
        assert ("changelane_capture_apply_delay_seconds",) not in metrics
        of_server = {
            key[0].removeprefix("changelane_capture_"): value
            for key, value in metrics.items()
            if key[0].endswith("_bytes")
        }
        expected = {"lag_bytes": 70, "slot_retained_bytes": 90, "slot_headroom_bytes": 0}
        assert of_server == ({} if is_down else expected)
        assert metrics.get(("changelane_capture_log_headroom_seconds",)) == (
            None if is_down else 7.5
        )


def test_losses_are_counted_by_name_and_class(capsys: pytest.CaptureFixture[str]) -> None:
    with watched(metrics_port=0) as display:
        address = capsys.readouterr().err.split()[-1]
        lost = {"event:tombstone (a (b))": 2, "position (a)": 3, "value:float (c)": 1}
        display.show_batch(sent(losses=lost))
        display.show_batch(sent(losses={"position (another)": 4}))
        told = scraped(address)
    first, second = lines(capsys.readouterr().err)
    assert (first["losses"], second["losses"]) == (lost, {"position (another)": 4})
    found = {place[1:]: n for place, n in told.items() if place[0] == "changelane_losses_total"}
    assert found == {
        ("metadata", "event.tombstone"): 2,
        ("metadata", "position"): 7,
        ("data", "value.float"): 1,
    }


def test_without_a_port_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelane.cli.run_display.Server", lambda *_: pytest.fail("listens"))
    with watched() as display:
        display.show_batch(batch())


def test_a_port_in_use_and_an_address_of_another_machine_are_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^port {port} of 127.0.0.1 is in use: set"):
            RunDisplay("shop", Options(), port)
    with pytest.raises(ConfigError, match=r"^metrics cannot be served at port 0 of 192\.0\.2\.1: "):
        RunDisplay("shop", Options(metrics_host="192.0.2.1"), 0)


def test_the_port_of_the_command_wins_over_that_of_the_file() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = Options(metrics_port=taken.getsockname()[1])
        with RunDisplay("shop", options, 0):
            pass


def test_a_run_reports_possible_duplicates_once() -> None:
    seen: list[int] = []
    said: list[str] = []
    took = with_repeat_note(lambda one: seen.append(one.batch), said.append)
    few = TableReport("shop.few", "/lake/few", possible_duplicates=1)
    many = TableReport("shop.many", "/lake/many", possible_duplicates=35)
    for number, tables in enumerate([[TableReport("shop.few", "/lake/few")], [few, many], [few]]):
        took(BatchReport(number, tables=tables))
    assert seen == [0, 1, 2]
    (note,) = said
    assert note.startswith("35 new rows of shop.many are possible duplicates")
    assert "provide.transaction.metadata" in note


def test_the_summary_of_a_run_and_the_live_line_show_warnings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print_summary(RunReport("shop", batches=[batch(), batch(tables=[])]), "/lake")
    assert capsys.readouterr().out.count("warning: shop.log: once") == 1
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    live = LiveLine("shop", Totals, console)
    live.show_batch(figures("shop", batch(), dt.datetime.now(dt.UTC), 1.0))
    assert "shop.log: once" in console.file.getvalue()
