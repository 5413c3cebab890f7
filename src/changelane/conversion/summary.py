# SPDX-License-Identifier: Apache-2.0
"""The counts of a conversion, as text and as JSON."""

from collections import Counter
from typing import Final

import msgspec

from changelane.conversion.group_transactions import IncompleteTransaction
from changelane.conversion.terminal_text import printable
from changelane.formats.contract.losses import Loss, LossPolicy, OnLoss, loss_class, otherwise
from changelane.pipeline.error_budget import Budget

SHOWN_FAILURES = 20
"""The maximum number of listed failures; all failures are counted."""


_COUNTS: Final = (
    "messages",
    "failed_messages",
    "events",
    "filtered",
    "excluded",
    "written",
    "tombstones_left_out",
    "keys_left_out",
)


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One failure of a conversion, without values of rows."""

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
        excluded: Events that the transforms exclude.
        duplicates: Duplicate operations of a transaction that were dropped.
        incomplete: The number of incomplete transactions; the first ones are listed.
        losses: Losses of written events.
        refused: Losses that were not accepted, so that their events failed.
        warnings: Distinct warnings about losses.
        printed_warning_count: The number of printed warnings.
        stopped: The reason why the conversion stopped and its output was discarded.
    """

    source: str
    target_format: str
    on_loss: OnLoss | LossPolicy
    budget: Budget
    messages: int = 0
    failed_messages: int = 0
    events: int = 0
    filtered: int = 0
    excluded: int = 0
    written: int = 0
    duplicates: int = 0
    incomplete: int = 0
    first_incomplete: list[IncompleteTransaction] = []
    tombstones_left_out: int = 0
    keys_left_out: int = 0
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    losses: Counter[Loss] = msgspec.field(default_factory=Counter)
    refused: Counter[Loss] = msgspec.field(default_factory=Counter)
    warnings: list[str] = []
    printed_warning_count: int = 0
    first_failures: list[Failure] = []
    stopped: str | None = None

    def empty(self) -> "Summary":
        """Return an empty summary of the same conversion."""
        return Summary(self.source, self.target_format, self.on_loss, self.budget)

    def add(self, block_summary: "Summary") -> None:
        """Add the counts of later messages, without their losses and warnings."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(block_summary, name))
        self.failures.update(block_summary.failures)
        self.refused.update(block_summary.refused)
        shown_count = SHOWN_FAILURES - len(self.first_failures)
        self.first_failures.extend(block_summary.first_failures[:shown_count])

    def fail(self, failure: Failure) -> None:
        """Count a failure."""
        self.failures[failure.reason] += 1
        if len(self.first_failures) < SHOWN_FAILURES:
            self.first_failures.append(failure)

    def count_incomplete(self, transaction: IncompleteTransaction) -> None:
        """Count a transaction that was written incompletely."""
        self.incomplete += 1
        if len(self.first_incomplete) < SHOWN_FAILURES:
            self.first_incomplete.append(transaction)

    @property
    def is_within_budget(self) -> bool:
        """Whether the number of failed messages is within the error budget."""
        return self.budget.allows(self.failed_messages, self.messages)

    def as_json(self) -> bytes:
        """Return the summary as JSON."""
        return msgspec.json.format(
            msgspec.json.encode(
                {
                    "from": self.source,
                    "to": self.target_format,
                    "messages": self.messages,
                    "failed_messages": self.failed_messages,
                    "stopped": self.stopped,
                    "max_errors": self.budget.text,
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
                    "on_loss": self.on_loss,
                    "losses": _as_list(self.losses),
                    "refused": _as_list(self.refused),
                    "warnings": self.warnings,
                    "failures": dict(self.failures.most_common()),
                    "first_failures": self.first_failures,
                }
            )
        )

    def as_text(self) -> str:
        """Return the summary as text."""
        lines = [f"read      {_count(self.messages, 'message')}, {_count(self.events, 'event')}"]
        if self.filtered:
            lines.append(f"filtered  {_count(self.filtered, 'event')} of other tables")
        if self.excluded:
            lines.append(f"excluded  {_count(self.excluded, 'event')} by --transform")
        lines.append(f"written   {_count(self.written, 'message')}")
        if self.duplicates:
            lines.append(f"dropped   {_count(self.duplicates, 'duplicate operation')}")
        if self.incomplete:
            transactions = _count(self.incomplete, "incomplete transaction")
            lines.append(f"partial   {transactions}, written without the missing operations")
            lines.extend(printable(f"  {transaction}") for transaction in self.first_incomplete)
        for count, noun in (
            (self.tombstones_left_out, "tombstone"),
            (self.keys_left_out, "message key"),
        ):
            if count:
                lines.append(
                    f"left out  {_count(count, noun)}: lines of values do not contain it "
                    "(--output-line-format record does)"
                )
        lines.extend(self._lost_lines())
        lines.extend(_loss_lines("refused", self.target_format, self.refused))
        if self.failures:
            verdict = "within" if self.is_within_budget else "beyond"
            lines.append(
                f"failed    {_count(self.failed_messages, 'message')}, "
                f"{verdict} --max-errors {self.budget.text}"
            )
            lines.extend(f"  {count:>8,}  {code}" for code, count in self.failures.most_common())
        if self.stopped:
            lines.append(f"Error: {printable(self.stopped)}; a file OUT was not written")
        return "\n".join(lines)

    def _lost_lines(self) -> list[str]:
        policy = self.on_loss
        shown: Counter[Loss] = Counter()
        ignored = 0
        for loss, count in self.losses.items():
            is_accepted = isinstance(policy, LossPolicy) and policy.accepts(loss[0])
            if otherwise(policy) is OnLoss.IGNORE and not is_accepted:
                ignored += count
            else:
                shown[loss] = count
        lines = _loss_lines("lost", self.target_format, shown)
        if ignored:
            lines.append(f"lost      {_count(ignored, 'part')}, ignored (--output json lists them)")
        return lines


def _as_list(losses: Counter[Loss]) -> list[dict[str, object]]:
    return [
        {"field": field, "reason": reason, "class": loss_class(field), "count": count}
        for (field, reason), count in losses.most_common()
    ]


def _loss_lines(word: str, target_format: str, losses: Counter[Loss]) -> list[str]:
    """Return the lines of losses; losses of data come first."""
    if not losses:
        return []
    by_class = sorted(losses.most_common(), key=lambda loss_count: loss_class(loss_count[0][0]))
    return [
        f"{word:<9} {_count(losses.total(), 'part')} that {target_format} cannot carry",
        *(
            printable(f"  {count:>8,}  {field} ({reason}), {loss_class(field)}")
            for (field, reason), count in by_class
        ),
    ]


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
