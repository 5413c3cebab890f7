# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector, which takes long in processes with many objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


@cache
def freeze_modules() -> None:
    """Exclude the present objects from garbage collection; only the first call does so.

    A worker that reads messages has many new objects, so that the collector runs again and again.
    With the objects of pandas and PySpark it takes a sixth of the time of a message.
    """
    gc.freeze()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector, for work that needs all of its objects until its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
