# SPDX-License-Identifier: Apache-2.0
"""What a continuous verification has proven, and since when."""

from typing import Any

import msgspec
import pytest

from changelane.cli.verify_metrics import VerifyMetrics
from changelane.spark.verify.progress import TableProgress
from changelane.spark.verify.progress_store import StoredRound
from changelane.spark.verify.report import KeyDifference, TableReport


def report(**changes: Any) -> TableReport:
    return TableReport(**{"table": "shop.t", "outcome": "equal", **changes})


def test_a_table_is_proven_when_all_of_its_chunks_are() -> None:
    progress = TableProgress(chunk_count=2)
    assert (progress.proven_share, progress.oldest_time_s) == (0, None)
    progress = progress.after(report(), chunk=0, chunk_count=2, time_s=10)
    assert (progress.proven_share, progress.oldest_time_s) == (0.5, None)
    progress = progress.after(report(unproven_share=0.5), chunk=1, chunk_count=2, time_s=20)
    assert (progress.proven_share, progress.oldest_time_s) == (0.75, 10)
    progress = progress.after(report(), chunk=0, chunk_count=2, time_s=30)
    assert progress.oldest_time_s == 20


def test_a_stored_round_is_the_same_when_it_is_read() -> None:
    progress = TableProgress(chunk_count=3).after(report(), chunk=0, chunk_count=3, time_s=10)
    bounds = (("10", "ä"), ("20", ""))
    stored = StoredRound(progress=progress, next_chunk=1, bounds=bounds, time_s=10)
    assert msgspec.json.decode(msgspec.json.encode(stored), type=StoredRound) == stored
    rounds = [msgspec.structs.replace(stored, next_chunk=chunk) for chunk in range(4)]
    assert [stored_round.is_complete for stored_round in rounds] == [False, False, False, True]


def test_a_table_with_fewer_chunks_forgets_the_others() -> None:
    progress = TableProgress(chunk_count=1)
    for chunk in range(3):
        progress = progress.after(report(), chunk=chunk, chunk_count=3, time_s=chunk)
    progress = progress.after(report(), chunk=0, chunk_count=1, time_s=9)
    assert (progress.proven_share, progress.oldest_time_s) == (1, 9)


def test_chunks_of_a_longer_round_count_until_the_end_of_the_next_one() -> None:
    different = report(differences=(KeyDifference({"id": "1"}, "extra"),), outcome="different")
    progress = TableProgress(chunk_count=3)
    for chunk, result in enumerate((report(), report(unproven_share=1.0), different)):
        progress = progress.after(result, chunk=chunk, chunk_count=3, time_s=chunk)
    progress = progress.after(report(), chunk=0, chunk_count=2, time_s=9)
    assert progress.difference_count == 1
    assert progress.proven_share == pytest.approx(2 / 3)
    progress = progress.after(report(), chunk=1, chunk_count=2, time_s=10)
    assert (progress.proven_share, progress.difference_count) == (1, 0)


def test_a_table_that_cannot_be_verified_is_not_proven() -> None:
    progress = TableProgress(chunk_count=1)
    progress = progress.after(
        report(outcome="not verified", reason="no key"), chunk=0, chunk_count=1, time_s=1
    )
    assert progress.proven_share == 0


def test_a_table_that_the_lake_lacks_has_a_difference() -> None:
    missing = report(outcome="different", reason="the lake has no table of it")
    progress = TableProgress(chunk_count=1).after(missing, chunk=0, chunk_count=1, time_s=1)
    assert progress.difference_count == 1


def test_metrics_are_the_share_the_oldest_proof_and_the_differences() -> None:
    pytest.importorskip("prometheus_client")
    differences = (
        KeyDifference({"id": "1"}, "extra"),
        KeyDifference({"id": "2"}, "extra", (), "repaired"),
    )
    progress = TableProgress(chunk_count=2).after(
        report(differences=differences), chunk=0, chunk_count=2, time_s=5
    )
    metrics = VerifyMetrics({"shop.t\x1b": progress}).collect()
    samples = {sample.name: sample for metric in metrics for sample in metric.samples}
    assert {name: sample.value for name, sample in samples.items()} == {
        "changelane_verified_share": 0.5,
        "changelane_verified_differences": 1,
    }
    assert samples["changelane_verified_share"].labels == {"table": "shop.t\\x1b"}
