# SPDX-License-Identifier: Apache-2.0
"""changelane on Spark; the only package that imports pyspark.

::

    from changelane.spark import apply_changes, decode, session
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from changelane.errors import MissingExtraError
from changelane.spark.runtime.zip_imports import is_worker, keep_zip_directories

if TYPE_CHECKING:
    from changelane.spark.apply.apply_changes import apply_changes
    from changelane.spark.rows.decode import decode
    from changelane.spark.run.latest import create_latest_views, latest_tables
    from changelane.spark.runtime.session import session

__all__ = ["apply_changes", "create_latest_views", "decode", "latest_tables", "session"]

_WHERE: Final = {
    "apply_changes": "apply.apply_changes",
    "create_latest_views": "run.latest",
    "decode": "rows.decode",
    "latest_tables": "run.latest",
    "session": "runtime.session",
}


if is_worker():
    keep_zip_directories()


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(name)
    try:
        importlib.import_module("pandas")  # mapInArrow needs it, and its own error comes late
        module = importlib.import_module(f"changelane.spark.{_WHERE[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("changelane"):
            raise  # a defect of ours, not something to install
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    return getattr(module, name)
