"""The parts of ``make bench-peers`` that need neither Flink nor Spark."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb_extensions", reason="the extra `readers` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `kafka` is not installed")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module


def test_races_are_chosen_by_name(benchmark):
    parser = benchmark("peers").parser()
    arguments = parser.parse_args(["convert", "small", "--messages", "1000"])
    assert (arguments.races, arguments.messages, arguments.rows) == (
        ["convert", "small"],
        1000,
        2_000_000,
    )
    with pytest.raises(SystemExit):
        parser.parse_args(["slow"])


def test_a_run_without_flink_is_one_sentence(benchmark, monkeypatch, capsys, tmp_path):
    flink, peers = benchmark("flink"), benchmark("peers")
    monkeypatch.setenv(flink.HOME_VARIABLE, str(tmp_path))

    def fetch() -> None:
        raise peers.ConfigError("much output\nthe network failed")

    monkeypatch.setattr(flink, "fetch", fetch)
    assert not peers.has_flink()
    assert capsys.readouterr().out == (
        "Flink's jars are missing, so only changelane runs: the network failed\n"
    )


def test_flink_reads_a_topic_to_its_present_end_or_for_ever(benchmark):
    flink = benchmark("flink")
    bounded = flink.table("source", flink.source_topic("b:9092", "t", is_bounded=True))
    assert "'scan.bounded.mode' = 'latest-offset'" in bounded
    endless = flink.table("source", flink.source_topic("b:9092", "t", is_bounded=False))
    assert endless == bounded.replace(", 'scan.bounded.mode' = 'latest-offset'", "")


def test_flink_upserts_by_the_key(benchmark):
    flink = benchmark("flink")
    source = flink.source_topic("b:9092", "t", is_bounded=True)
    for kind, option in (
        ("paimon", "'bucket' = '2'"),
        ("iceberg", "'write.upsert.enabled' = 'true'"),
    ):
        *_, table, insert = flink.load(source, kind, Path("/lake"))
        assert "`o_orderkey` BIGINT, `o_custkey` BIGINT, `o_totalprice` DOUBLE" in table
        assert "PRIMARY KEY (`o_orderkey`) NOT ENFORCED" in table
        assert option in table
        assert insert == f"INSERT INTO {kind}.shop.orders SELECT * FROM source"


def test_a_script_is_stored_for_the_program_that_runs_it(benchmark, tmp_path):
    flink = benchmark("flink")
    path = tmp_path / "job.json"
    *_, argument = flink.Script(flink.settings(checkpoint_s=0.5), ["SELECT 1"]).command(path)
    assert argument == str(path)
    script = json.loads(path.read_text())
    assert script["settings"]["execution.checkpointing.interval"] == "500 ms"
    assert script["statements"] == ["SELECT 1"]


def test_both_kinds_of_canal_messages_give_the_same_rows(benchmark):
    orders, convert = benchmark("orders"), benchmark("race_convert")
    shop = orders.Shop()
    by_flink, by_changelane = [], []
    for op, before, after in shop.changes(300):
        if before:
            by_flink.append({"data": [before], "type": "DELETE"})
        if after:
            by_flink.append({"data": [after], "type": "INSERT"})
        row = {name: str(value) for name, value in (after or before).items()}
        name = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
        by_changelane.append({"data": [row], "type": name})
    expected = sorted(shop.rows(), key=lambda row: row["o_orderkey"])
    assert 0 < len(expected) < 300
    for messages in (by_flink, by_changelane):
        rows = convert.rows_of(json.dumps(message).encode() for message in messages)
        assert sorted(rows, key=lambda row: row["o_orderkey"]) == expected


def test_tables_that_differ_in_one_value_are_not_equal(benchmark, tmp_path):
    orders, readers = benchmark("orders"), benchmark("readers")
    shop = orders.Shop()
    for _ in shop.inserts(10):
        pass
    rows = list(shop.rows())
    expected = readers.table("parquet", readers.store(rows, tmp_path / "a"))
    assert readers.check_equal(readers.connect(), "t", expected, expected) == 10
    changed = [{**rows[0], "o_comment": "other"}, *rows[1:]]
    other = readers.table("parquet", readers.store(changed, tmp_path / "b"))
    with pytest.raises(SystemExit, match="'missing': 1, 'unexpected': 1"):
        readers.check_equal(readers.connect(), "t", other, expected)


def test_the_commits_of_each_format_are_read(benchmark, tmp_path):
    streams = benchmark("race_streams")
    delta, iceberg, paimon = (tmp_path / name for name in ("delta", "iceberg", "paimon"))
    for folder in (delta / "_delta_log", iceberg / "metadata", paimon / "snapshot"):
        folder.mkdir(parents=True)
    for version, (path, count) in enumerate((("a", 3), ("b", 4))):
        stats = json.dumps({"numRecords": count})
        text = json.dumps({"add": {"path": path, "stats": stats}})
        (delta / "_delta_log" / f"{version:020}.json").write_text(text)
        snapshots = [{"snapshot-id": version, "summary": {"total-records": str(3 + 4 * version)}}]
        metadata = {"current-snapshot-id": version, "snapshots": snapshots}
        (iceberg / "metadata" / f"v{version + 1}.metadata.json").write_text(json.dumps(metadata))
        snapshot = {"commitKind": "APPEND", "deltaRecordCount": count}
        (paimon / "snapshot" / f"snapshot-{version + 1}").write_text(json.dumps(snapshot))
    (paimon / "snapshot" / "snapshot-3").write_text('{"commitKind":"COMPACT"}')
    for kind, folder in (("delta", delta), ("iceberg", iceberg), ("paimon", paimon)):
        assert [commit.rows for commit in streams.commits(kind, folder)] == [3, 7]
    assert streams.commits("delta", tmp_path / "none") == []


BURN = "import time; text = b'x' * (100 << 20)\nwhile time.process_time() < 0.7: pass"


def test_the_figures_of_a_command_include_children_whose_end_it_ignores(benchmark, tmp_path):
    process_tree = benchmark("process_tree")
    parent = f"""
import contextlib, os, signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as the daemon of Spark's Python workers
with contextlib.suppress(ChildProcessError):
    os.waitpid(subprocess.Popen([sys.executable, "-c", {BURN!r}]).pid, 0)
"""
    usage = process_tree.Job([process_tree.sys.executable, "-c", parent], tmp_path / "log").wait()
    assert 0.2 <= usage.processor < 1.4  # what it used after the last sample is not known


def test_the_figures_of_a_command_include_its_orphans(benchmark, tmp_path):
    process_tree = benchmark("process_tree")
    # the child outlives its parent, which would hide its processor time
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}])"
    usage = process_tree.Job([process_tree.sys.executable, "-c", parent], tmp_path / "log").wait()
    assert usage.exit_code == 0
    assert usage.processor >= 0.7
    assert usage.peak_mb["all"] >= 100
    with pytest.raises(SystemExit, match=r"the command failed \(3\)"):
        process_tree.Job(["sh", "-c", "exit 3"], tmp_path / "log").wait()
