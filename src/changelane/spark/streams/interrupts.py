# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a run: it is told between two questions to the JVM, and never in the middle of one.

Spark's own handler asks the JVM to cancel its jobs while the main thread still waits for an answer
of it. That breaks their connection: the run would end as one that failed.
"""

import logging
import signal
from types import FrameType
from typing import Any, Self

from changelane.errors import ChangelaneError


class InterruptedRunError(ChangelaneError):
    """What a batch ends with that is interrupted; Spark looks through all of its words."""


class Interrupts:
    """Whether somebody pressed Ctrl-C; whoever presses it again interrupts at once.

    Only the main thread can hear it: elsewhere nothing is told.
    """

    def __init__(self) -> None:
        self.is_told = False
        self._before: Any = None
        self._is_heard = False

    def __enter__(self) -> Self:
        try:
            self._before = signal.signal(signal.SIGINT, self._take)
            self._is_heard = True
        except ValueError:  # not the main thread
            self._is_heard = False
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_heard:
            signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Interrupt, if somebody wants it.

        Raises:
            KeyboardInterrupt: Somebody does.
        """
        if self.is_told:
            raise KeyboardInterrupt

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.check()
        self.is_told = True
        # it tells of every call that the end of the stream cuts off
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
