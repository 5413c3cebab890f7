# SPDX-License-Identifier: Apache-2.0
"""Each source has checks of its own: those of an installed package say only that it answers."""

from typing import get_args

from changelane.pipeline.config import Source
from changelane.spark.check.pipeline import SOURCES


def test_each_type_of_source_has_a_check() -> None:
    assert SOURCES.keys() == {kind.__struct_config__.tag for kind in get_args(Source)}
