# SPDX-License-Identifier: Apache-2.0
"""The pages that are generated are up to date."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SPEC = importlib.util.spec_from_file_location("write_pages", ROOT / "scripts" / "write_pages.py")
write_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(write_pages)


@pytest.mark.parametrize("name", write_pages.PAGES)
def test_a_generated_page_is_what_is_generated(name):
    stored = (ROOT / "docs" / name).read_text("utf-8")
    assert stored == write_pages.PAGES[name](), f"docs/{name} is not up to date: make golden"
