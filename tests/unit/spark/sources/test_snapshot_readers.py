# SPDX-License-Identifier: Apache-2.0
"""The readers of a database's snapshot as tasks of Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from changelane.errors import ConfigError

pytest.importorskip("pyspark", reason="pyspark is not installed: changelane[spark]")

from changelane.spark.sources.snapshot_readers import read_chunks


def test_readers_are_not_started_twice_in_parallel() -> None:
    settings = {"spark.speculation": "true"}
    session: Any = SimpleNamespace(conf=settings)
    with pytest.raises(ConfigError, match=r"spark\.speculation"):
        read_chunks(session, [])
