# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in a run: raises between two calls to the JVM, never within one.

Spark's own handler cancels the jobs in the JVM while the main thread still waits for an answer.
That breaks the connection, and the run would end as a failed one.
"""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final, Self

from changelane.errors import ChangelaneError

STOP_NOTE: Final = "interrupted: the run stops after this batch; Ctrl-C again stops it now"


class InterruptedRunError(ChangelaneError):
    """Ends an interrupted batch; its message is short because Spark searches all of it."""

    def __init__(self) -> None:
        super().__init__("the run is interrupted")


class Interrupts:
    """Counts Ctrl-C: the first stops the run after the current batch, the second at once.

    Only the main thread receives the signal; in another thread the counter stays at zero.

    Args:
        notify: Shows a note to the user.

    Attributes:
        is_requested: Whether the user pressed Ctrl-C.
        is_urgent: Whether the user pressed Ctrl-C twice.
    """

    def __init__(self, notify: Callable[[str], None] = lambda _: None) -> None:
        self._notify = notify
        self.is_requested = False
        self.is_urgent = False
        self._is_in_batch = False
        self._previous_handler: Any = None
        self._is_installed = False

    def __enter__(self) -> Self:
        try:
            self._previous_handler = signal.signal(signal.SIGINT, self._on_sigint)
            self._is_installed = True
        except ValueError:  # not the main thread
            self._is_installed = False
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, self._previous_handler)

    def check(self) -> None:
        """Raise if an interrupt was requested and no batch is under way.

        Raises:
            KeyboardInterrupt: It was.
        """
        if self.is_requested and not self._is_in_batch:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Run a batch to its end, without interrupts from :meth:`check`.

        Raises:
            InterruptedRunError: The run stops: no other batch begins.
        """
        self._is_in_batch = True
        try:
            # after the flag above is set: an earlier check stops the stream, a later one waits
            if self.is_requested:
                raise InterruptedRunError
            yield
        finally:
            self._is_in_batch = False

    def _on_sigint(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_requested:
            self.is_urgent = True
            raise KeyboardInterrupt
        self.is_requested = True
        with contextlib.suppress(Exception):  # the reader of our output may have exited
            self._notify(STOP_NOTE)
        # py4j logs every call that the end of the stream interrupts
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
