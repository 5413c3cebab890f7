"""What a pipeline into Hudi tables cannot ask for."""

from typing import Any, Final

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, parse

ORDERS: Final = {"partition_by": ["day"]}


def pipeline(options: dict[str, Any], **sink: str) -> Pipeline:
    return parse(
        {
            "name": "shop",
            "source": {"type": "files", "path": "in", "format": "native-json"},
            "sink": {"type": "hudi", "path": "lake", **sink},
            "options": options,
        }
    )


def test_a_pipeline_may_have_hudi_tables() -> None:
    told = pipeline({"maintenance": "off", "tables": {"orders": {"mode": "history"}}})
    assert told.table_format == "hudi"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"maintenance": {"snapshot_retention": "1 day"}},
            r"options\.maintenance: not supported for Hudi",
        ),
        ({"properties": {"a": "b"}}, r"options\.properties: not supported for Hudi"),
        (
            {"tables": {"orders": ORDERS}},
            r"options\.tables\.orders\.partition_by: not supported for Hudi",
        ),
    ],
)
def test_what_hudi_tables_do_not_do_is_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        pipeline(options)


def test_hudi_tables_lie_under_the_path() -> None:
    with pytest.raises(ConfigError, match="Hudi tables are under path"):
        pipeline({}, location="s3://lake/{table}")
