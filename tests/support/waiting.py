# SPDX-License-Identifier: Apache-2.0
"""Waits for states that other processes and threads reach, and that nothing announces."""

import time
from collections.abc import Callable
from typing import Any

_POLL_S = 0.02


def wait_until(condition: Callable[[], Any], timeout_s: float, shown: object = "") -> None:
    """Look at a condition again and again until it is true.

    Args:
        condition: The condition.
        timeout_s: The longest wait, seconds; after it the test fails.
        shown: What the failure shows.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not come true in time {shown}"
        time.sleep(_POLL_S)
