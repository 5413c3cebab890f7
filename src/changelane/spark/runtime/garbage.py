# SPDX-License-Identifier: Apache-2.0
"""Python's search for cycles of references, which takes long where many objects are alive."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def freeze_modules() -> None:
    """Leave the objects that exist now out of every later search; only the first call does so.

    A process that reads messages has many new objects alive at a time, and searches all objects
    again and again: among those of pandas and PySpark it takes a sixth of the time of a message.
    """
    gc.freeze()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Do not search at all: for work that has all of its objects alive until its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
