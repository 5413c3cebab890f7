# SPDX-License-Identifier: Apache-2.0
"""What a conversion did, counted, for people and for programs."""

from collections import Counter

import msgspec

from changelane.budget import Budget
from changelane.carries import Loss
from changelane.cli.terminal import printable
from changelane.codec import OnLoss
from changelane.transforms.transactions import Incomplete

SHOWN_FAILURES = 20
"""Failures that are told one by one; the rest is counted."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that could not be converted; never with a value of a row."""

    line: int
    stage: str
    format: str
    reason: str
    error: str
    path: str = "$"

    def __str__(self) -> str:
        return printable(f"line {self.line}: {self.format}: {self.error}")


class Summary(msgspec.Struct):
    """Counts of one conversion.

    Attributes:
        excluded: Events that the transforms let not pass.
        duplicates: Operations of a transaction that came again and were dropped.
        incomplete: Transactions that stayed incomplete; the first of them are told one by one.
        stopped: Why the conversion did not come to its end, so that no output was kept.
    """

    source: str
    target: str
    on_loss: OnLoss
    budget: Budget
    messages: int = 0
    failed_messages: int = 0
    events: int = 0
    filtered: int = 0
    excluded: int = 0
    written: int = 0
    duplicates: int = 0
    incomplete: int = 0
    first_incomplete: list[Incomplete] = []
    tombstones_left_out: int = 0
    keys_left_out: int = 0
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    losses: Counter[Loss] = msgspec.field(default_factory=Counter)
    first_failures: list[Failure] = []
    stopped: str | None = None

    def fail(self, failure: Failure) -> None:
        """Count a failure."""
        self.failures[failure.reason] += 1
        if len(self.first_failures) < SHOWN_FAILURES:
            self.first_failures.append(failure)

    def tell_incomplete(self, transaction: Incomplete) -> None:
        """Count a transaction that was written without all its operations."""
        self.incomplete += 1
        if len(self.first_incomplete) < SHOWN_FAILURES:
            self.first_incomplete.append(transaction)

    @property
    def is_within_budget(self) -> bool:
        """As few messages failed as the user allows."""
        return self.budget.holds(self.failed_messages, self.messages)

    def as_json(self) -> bytes:
        """Return the summary for programs."""
        return msgspec.json.format(
            msgspec.json.encode(
                {
                    "from": self.source,
                    "to": self.target,
                    "messages": self.messages,
                    "failed_messages": self.failed_messages,
                    "stopped": self.stopped,
                    "max_failures": self.budget.text,
                    "within_budget": self.is_within_budget,
                    "events": self.events,
                    "filtered": self.filtered,
                    "excluded": self.excluded,
                    "written": self.written,
                    "transactions": {
                        "duplicates": self.duplicates,
                        "incomplete": self.incomplete,
                        "first_incomplete": self.first_incomplete,
                    },
                    "left_out": {
                        "tombstones": self.tombstones_left_out,
                        "keys": self.keys_left_out,
                    },
                    "on_loss": self.on_loss.value,
                    "losses": [
                        {"field": field, "reason": reason, "count": count}
                        for (field, reason), count in self.losses.most_common()
                    ],
                    "failures": dict(self.failures.most_common()),
                    "first_failures": self.first_failures,
                }
            )
        )

    def as_text(self) -> str:
        """Return the summary for people."""
        lines = [f"read      {_count(self.messages, 'message')}, {_count(self.events, 'event')}"]
        if self.filtered:
            lines.append(f"filtered  {_count(self.filtered, 'event')} of other tables")
        if self.excluded:
            lines.append(f"excluded  {_count(self.excluded, 'event')} by --transform")
        lines.append(f"written   {_count(self.written, 'message')}")
        if self.duplicates:
            lines.append(f"dropped   {_count(self.duplicates, 'operation')} that came twice")
        if self.incomplete:
            of = "it" if self.incomplete == 1 else "them"
            what = _count(self.incomplete, "transaction")
            lines.append(f"not whole {what}; what came of {of} is written")
            lines.extend(printable(f"  {transaction}") for transaction in self.first_incomplete)
        for count, what in (
            (self.tombstones_left_out, "tombstone"),
            (self.keys_left_out, "message key"),
        ):
            if count:
                lines.append(
                    f"left out  {_count(count, what)}: a line of values has no place for it "
                    "(--output-as records)"
                )
        lines.extend(self._loss_lines())
        if self.failures:
            verdict = "within" if self.is_within_budget else "beyond"
            lines.append(
                f"failed    {_count(self.failed_messages, 'message')}, "
                f"{verdict} --max-failures {self.budget.text}"
            )
            lines.extend(f"  {count:>8,}  {code}" for code, count in self.failures.most_common())
        if self.stopped:
            lines.append(f"Error: {printable(self.stopped)}; a file OUT was not written")
        return "\n".join(lines)

    def _loss_lines(self) -> list[str]:
        total = sum(self.losses.values())
        if not total:
            return []
        if self.on_loss is OnLoss.IGNORE:
            return [f"lost      {_count(total, 'part')}, ignored (--output json lists them)"]
        word = "refused" if self.on_loss is OnLoss.RAISE else "lost"
        return [
            f"{word:<9} {_count(total, 'part')} that {self.target} cannot carry",
            *(
                printable(f"  {count:>8,}  {field} ({reason})")
                for (field, reason), count in self.losses.most_common()
            ),
        ]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
