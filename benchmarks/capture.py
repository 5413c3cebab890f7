# SPDX-License-Identifier: Apache-2.0
"""Measures the capture of databases.

Usage: capture.py [snapshot | stream | memory | latency] [OPTIONS]

Without the name of a figure it is ``snapshot``. ``FIGURE --help`` shows the options.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import capture_latency
import capture_snapshot
import capture_stream

_FIGURES: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "snapshot": capture_snapshot.main,
    "stream": capture_stream.main,
    "memory": capture_stream.measure_memory,
    "latency": capture_latency.main,
}


def main(arguments: list[str]) -> None:
    """Measure a figure."""
    name = arguments.pop(0) if arguments and arguments[0] in _FIGURES else "snapshot"
    before = os.getloadavg()[0]
    _FIGURES[name](arguments)
    print(f"load average: {before:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main(sys.argv[1:])
