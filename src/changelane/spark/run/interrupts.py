# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a run: it is told between two questions to the JVM, and never in the middle of one.

Spark's own handler asks the JVM to cancel its jobs while the main thread still waits for an answer
of it. That breaks their connection: the run would end as one that failed.
"""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Self

from changelane.errors import ChangelaneError

STOPPING: Final = "interrupted: the run stops after this batch; Ctrl-C again stops it now"


class InterruptedRunError(ChangelaneError):
    """What a batch ends with that is interrupted; Spark looks through all of its words."""

    def __init__(self) -> None:
        super().__init__("the run is interrupted")


class Interrupts:
    """Whether somebody pressed Ctrl-C: once to stop after the batch under way, twice to stop now.

    Only the main thread can hear it: elsewhere nothing is told.

    Args:
        say: Shows people a note.

    Attributes:
        is_told: Somebody pressed it.
        is_urgent: Somebody pressed it twice.
    """

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say = say
        self.is_told = False
        self.is_urgent = False
        self._is_in_batch = False
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
        """Interrupt, if somebody wants it and no batch is under way.

        Raises:
            KeyboardInterrupt: Somebody does.
        """
        if self.is_told and not self._is_in_batch:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Let a batch come to its end.

        Raises:
            InterruptedRunError: The run stops: no other batch begins.
        """
        self._is_in_batch = True
        try:
            # behind the line above: who looked before it stops the stream, who looks now waits
            if self.is_told:
                raise InterruptedRunError
            yield
        finally:
            self._is_in_batch = False

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_told:
            self.is_urgent = True
            raise KeyboardInterrupt
        self.is_told = True
        with contextlib.suppress(Exception):  # whoever read our output may be gone
            self._say(STOPPING)
        # it tells of every call that the end of the stream cuts off
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
