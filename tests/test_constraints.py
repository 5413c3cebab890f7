# SPDX-License-Identifier: Apache-2.0
"""The constraint files pin the same versions, except those of Spark."""

from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
DIFFERENT: Final = {"pyspark"}


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {package.lower().replace("_", "-"): version for package, version in pairs}


@pytest.mark.parametrize("name", ["constraints-hudi.txt", "constraints-spark40.txt"])
def test_other_environments_have_the_versions_of_the_default_one(name: str) -> None:
    default, other = pins("constraints.txt"), pins(name)
    shared = (other.keys() & default.keys()) - DIFFERENT
    assert shared
    assert {p: other[p] for p in shared} == {p: default[p] for p in shared}
