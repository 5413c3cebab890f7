# SPDX-License-Identifier: Apache-2.0
"""The outcome of a table."""

import pytest

from changelane.spark.verify.canonical_text import CanonicalText
from changelane.spark.verify.comparison import ChunkResult, Comparison, Difference
from changelane.spark.verify.report import Outcome
from changelane.spark.verify.reporting import table_report
from changelane.spark.verify.table_plan import ComparedColumn, TablePlan

ID = ComparedColumn(name="id", lake_name="id", lake_type="string", text=CanonicalText("", ""))
PLAN = TablePlan(key_columns=(ID,), columns=(ID,), ranges=(), unproven_columns={})
DIFFERENCES = (Difference("1:y", "missing"), Difference("1:x", "extra"))
SEARCHED = ChunkResult(chunk=0, row_count=1, difference_count=2)
UNSEARCHED = ChunkResult(chunk=1, row_count=1, is_unsearched=True)


@pytest.mark.parametrize(
    ("repairs", "chunks", "outcome"),
    [
        ({}, (SEARCHED,), "different"),
        ({"1:y": "repaired"}, (SEARCHED,), "different"),
        ({"1:y": "repaired", "1:x": "not repaired: why"}, (SEARCHED,), "different"),
        ({"1:y": "repaired", "1:x": "repaired"}, (SEARCHED,), "repaired"),
        ({"1:y": "repaired", "1:x": "repaired"}, (SEARCHED, UNSEARCHED), "different"),
    ],
)
def test_a_table_is_repaired_if_all_of_its_differences_are(
    repairs: dict[str, str], chunks: tuple[ChunkResult, ...], outcome: Outcome
) -> None:
    comparison = Comparison(row_count=2, chunks=chunks, differences=DIFFERENCES)
    report = table_report("t", PLAN, comparison, bounds=(), duration_s=0, repairs=repairs)
    assert report.outcome == outcome
