# SPDX-License-Identifier: Apache-2.0
"""The jars that Spark needs beside its own, and where they are kept.

Spark fetches them itself, through ``spark.jars.packages`` and its built-in Ivy; this table is the
only place that names a version. All of them work together in one session of PySpark 4.0.

>>> packages("delta")
'io.delta:delta-spark_2.13:4.0.1'
"""

import os
from pathlib import Path
from typing import Final

PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "delta": ("io.delta:delta-spark_2.13:4.0.1",),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
    # The newest connector whose token provider is published beside it for Spark 4.0.
    "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",),
}

IVY_DIR_VARIABLE: Final = "CHANGELANE_IVY_DIR"


def packages(*names: str) -> str:
    """The value of ``spark.jars.packages`` for these entries of :data:`PACKAGES`."""
    coordinates = (coordinate for name in names for coordinate in PACKAGES[name])
    return ",".join(dict.fromkeys(coordinates))


def ivy_dir() -> Path | None:
    """The value of ``spark.jars.ivy``: where fetched jars are kept, None for Spark's own default.

    ``CHANGELANE_IVY_DIR`` decides; a checkout keeps them in its ``.cache/ivy``; an installed
    package leaves the choice to Spark.
    """
    if chosen := os.environ.get(IVY_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "src" / "changelane").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / "ivy"
    return None
