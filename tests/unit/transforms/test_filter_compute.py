# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute`` as a pipeline's file has them: where they may stand."""

import re
from typing import Any

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import load_transforms, parse
from changelane.transforms.filter_compute import Compute, Filter
from changelane.transforms.project_rename import Rename

FILTER = {"type": "filter", "tables": ["shop.orders"], "where": "total > 0"}
COMPUTE = {"type": "compute", "columns": {"net": "total / 2"}}
RENAME = {"type": "rename", "columns": {"a": "b"}}


def pipeline(*transforms: Any, sink: Any = None, **options: Any) -> Any:
    source = {
        "type": "kafka",
        "bootstrap_servers": "b:1",
        "topics": ["t"],
        "format": "debezium-json",
    }
    return parse(
        {
            "name": "p",
            "source": source,
            "sink": sink or {"type": "delta", "path": "lake"},
            "transforms": list(transforms),
            "options": options,
        }
    )


def test_expressions_come_after_what_is_applied_where_messages_are_decoded():
    made = pipeline(RENAME, FILTER, COMPUTE)
    assert made.pure_steps == (Rename(columns={"a": "b"}),)
    assert made.expressions == (
        Filter(where="total > 0", tables=("shop.orders",)),
        Compute(columns={"net": "total / 2"}),
    )
    with pytest.raises(ConfigError, match="transform 2 comes after a filter or compute"):
        pipeline(FILTER, RENAME)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "append"}, "tables with `mode: append` would keep it"),
        ({"mode": "history"}, "tables with `mode: history` would keep it"),
        ({"deletes": "soft"}, "tables with `deletes: soft` would keep it"),
        ({"tables_without_key": "append"}, "remove `tables_without_key: append`"),
        ({"tables_without_key": "row"}, "remove `tables_without_key: row`"),
        ({"tables": {"orders": {"mode": "history"}}}, "the table orders with `mode: history`"),
        ({"tables": {"shop.orders": {"deletes": "soft"}}}, "the table shop.orders with `deletes"),
    ],
)
def test_a_filter_is_refused_where_a_row_would_not_leave(options, reason):
    with pytest.raises(ConfigError, match=re.escape(reason)):
        pipeline(FILTER, **options)
    assert pipeline(COMPUTE, **options).expressions


def test_other_tables_may_be_kept_as_they_like():
    options = {"tables": {"audit": {"mode": "append"}, "shop.items": {"deletes": "soft"}}}
    assert pipeline(FILTER, **options).expressions
    with pytest.raises(ConfigError, match="the table audit"):
        pipeline(FILTER | {"tables": ["shop.*"]}, **options)


@pytest.mark.parametrize(
    "pattern", ["shop.public.orders", "*.orders", "shop.p*s", "shop*orders", "shop.public?orders"]
)
@pytest.mark.parametrize("name", ["shop.public.orders", "public.orders", "orders"])
def test_an_option_may_name_a_filtered_table_by_its_last_parts(pattern, name):
    options = {"tables": {name: {"mode": "append"}}}
    with pytest.raises(ConfigError, match=f"the table {name} with `mode: append`"):
        pipeline(FILTER | {"tables": [pattern]}, **options)
    assert pipeline(FILTER | {"tables": ["shop.public.reorders"]}, **options).expressions


def test_topics_and_hudi_tables_have_no_expressions():
    topic = {"type": "kafka", "bootstrap_servers": "b:1", "topic": "o", "format": "canal-json"}
    for sink in (topic | {"checkpoint": "s"}, {"type": "hudi", "path": "lake"}):
        with pytest.raises(ConfigError, match="for Delta and Iceberg tables"):
            pipeline(COMPUTE, sink=sink)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"type": "filter"}, "transform 1: where is missing"),
        ({"type": "compute", "columns": {}}, "compute needs columns"),
        ({"type": "compute", "columns": {"a": "1", "A": "2"}}, "differ only by case"),
        (
            {"type": "compute", "columns": {"_changelane_x": "1"}},
            "is not allowed as the name of a column",
        ),
        ({"type": "filter", "were": "a"}, "did you mean 'where'"),
    ],
)
def test_what_makes_no_sense_is_refused(raw, reason, tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(f"transforms: [{raw}]")
    with pytest.raises(ConfigError, match=re.escape(reason)):
        load_transforms(path, {})


def test_convert_rejects_expressions_because_it_has_no_spark(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(f"transforms: [{FILTER}]")
    with pytest.raises(ConfigError, match="`convert` runs without Spark"):
        load_transforms(path, {})
