# SPDX-License-Identifier: Apache-2.0
"""All lakes: one line each, imported when first used."""

import importlib
from typing import Final

from pyspark.sql import SparkSession

from changelane.errors import UnknownNameError
from changelane.spark.lake import Lake

LAKES: Final[dict[str, tuple[str, str]]] = {
    "delta": ("changelane.spark.lakes.delta", "Delta"),
    "iceberg": ("changelane.spark.lakes.iceberg", "Iceberg"),
}
"""Name of a table format -> its module and class."""


def lake(spark: SparkSession, root: str, name: str = "delta") -> Lake:
    """Return the tables of a format under a folder.

    Raises:
        UnknownNameError: There is no such format.
    """
    if name not in LAKES:
        raise UnknownNameError("table format", name, LAKES)
    module, kind = LAKES[name]
    found: Lake = getattr(importlib.import_module(module), kind)(spark, root)
    return found
