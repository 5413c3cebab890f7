# SPDX-License-Identifier: Apache-2.0
"""The pages that are generated are up to date."""

from pathlib import Path

import msgspec
import pipeline_page
import pytest
import write_pages

from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.options import Maintenance, Options, TableOptions
from changelane.transforms.registry import TRANSFORM_TYPES

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", write_pages.PAGES)
def test_a_generated_page_is_what_is_generated(name):
    stored = (ROOT / "docs" / name).read_text("utf-8")
    assert stored == write_pages.PAGES[name](), f"docs/{name} is not up to date: make golden"


def test_every_key_of_a_pipeline_has_a_meaning():
    missing = pipeline_page.missing_descriptions()
    assert not missing, f"describe under `Attributes:` of the class: {missing}"


def test_the_page_of_keys_has_every_class_that_a_pipeline_can_hold():
    shown = {(section.path, section.kind) for section in pipeline_page.sections()}
    config = msgspec.inspect.type_info(Pipeline)
    for union in ("source", "sink"):
        (field,) = (field for field in config.fields if field.name == union)
        assert {(union, kind.tag) for kind in field.type.types} <= shown
    assert {("transforms", name) for name in TRANSFORM_TYPES} <= shown
    text = (ROOT / "docs" / "pipeline.md").read_text("utf-8")
    for kind in (Options, TableOptions, Maintenance, KafkaSource):
        for field in kind.__struct_fields__:
            assert f"\n| `{field}` |" in text, f"docs/pipeline.md lacks {kind.__name__}.{field}"
