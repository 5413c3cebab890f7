# SPDX-License-Identifier: Apache-2.0
"""The reduction of row changes that look like one before: the short way of :class:`Reducer`.

What a format keeps of an event, and what it loses, hardly depends on the row: two changes of one
table that agree in a few marks (:meth:`Reductions._look`) lose the same. So the :class:`Reducer`
reduces the first of them, its outcome is kept, and the next ones take the same parts; their images
are still reduced one by one, and one that loses something else goes the whole way.
"""

from typing import Any, Final

import msgspec

from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Image,
    Op,
    Source,
    Transaction,
    is_complete,
    is_key_change,
)
from changelane.formats.contract.capabilities import Carries, SchemaPlan
from changelane.formats.contract.losses import Loss
from changelane.formats.contract.reducer import Reduced, Reducer
from changelane.schema import TableId, TableSchema

_MOST: Final = 4096
# members by their own names, which saves a costly look-up in their class
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_UNKNOWN: Final = Completeness.UNKNOWN

Look = tuple[Any, ...]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a change, apart from its images.

    Attributes:
        held: The parts of the change whose identity its look names: nothing else can take it.
        losses: What is lost in all, by what of it the images lose.
        plan: The reduction of its images; ``None`` without a schema.
        fills: Whether missing columns of the images before and after become NULL.
        has_before: Whether an image before stays; likewise the others.
    """

    held: tuple[object, ...]
    op: Op
    table: TableId
    schema: TableSchema | None
    source: Source
    losses: dict[tuple[Loss, ...], tuple[Loss, ...]]
    plan: SchemaPlan | None
    fills: tuple[bool, bool]
    has_before: bool
    has_key: bool
    has_position: bool
    has_details: bool
    has_holds: bool


class Reductions:
    """Reduces events to what a declaration carries, to the same result as :class:`Reducer`."""

    def __init__(self, carries: Carries) -> None:
        self._reduce = Reducer(carries)
        self._carries = carries
        (self._source_size, _), (self._process_size, _) = self._reduce.units.values()
        self._known: dict[Look, Outcome] = {}

    def __call__(self, event: ChangeEvent) -> Reduced:
        """Return what survives of *event*, as no, one or two events, and the losses."""
        if type(event) is not DataChange:
            return self._reduce(event)
        op, before, after = event.op, event.before, event.after
        schema, table, source = event.schema, event.table, event.source
        position, transaction, details = event.position, event.transaction, event.details
        source_ns, process_ns = event.source_time_ns, event.process_time_ns
        source_rest = process_rest = 0
        if source_ns is not None and (size := self._source_size) != 1:
            source_rest = source_ns % size if size else 1
        if process_ns is not None and (size := self._process_size) != 1:
            process_rest = process_ns % size if size else 1
        look: Look = (
            id(op),
            id(schema),
            id(table),
            id(source),
            type(position),
            event.key is None,
            None if before is None else op is _UPDATE and _kind(event),
            None if transaction is None else _stated(transaction),
            bool(details),
            not source_rest,
            not process_rest,
        )
        outcome = self._known.get(look)
        if outcome is None:
            return self._first(event, look)
        losses: dict[Loss, None] = {}
        if before is not None:
            before = self._image(before, outcome, 0, losses) if outcome.has_before else None
        if after is not None:
            plan = outcome.plan
            after = (
                self._reduce.untyped(after, losses)
                if plan is None
                else plan.image(after, losses, fill=outcome.fills[1])
            )
        lost = outcome.losses.get(tuple(losses))
        if lost is None:
            return self._first(event, look)
        if transaction is not None:
            transaction = self._reduce.transaction(transaction, losses)
        if source_rest and source_ns is not None:
            source_ns = source_ns - source_rest if self._source_size else None
        if process_rest and process_ns is not None:
            process_ns = process_ns - process_rest if self._process_size else None
        reduced = DataChange(
            outcome.op,
            outcome.table,
            event.key if outcome.has_key else None,
            before,
            after,
            outcome.schema,
            position if outcome.has_position else None,
            transaction,
            outcome.source,
            source_ns,
            process_ns,
            event.before_holds if outcome.has_holds else _UNKNOWN,
            event.after_holds if outcome.has_holds else _UNKNOWN,
            details if outcome.has_details else NO_DETAILS,
        )
        return (reduced,), lost

    def _image(self, image: Image, outcome: Outcome, which: int, losses: dict[Loss, None]) -> Image:
        plan = outcome.plan
        if plan is None:
            return self._reduce.untyped(image, losses)
        return plan.image(image, losses, fill=outcome.fills[which])

    def _first(self, event: DataChange, look: Look) -> Reduced:
        """Reduce a change the whole way, and keep the outcome where the next ones share it."""
        reduced, losses = self._reduce(event)
        if len(reduced) != 1 or not isinstance(reduced[0], DataChange):
            return reduced, losses
        reduced_event, schema = reduced[0], event.schema
        plan = None if schema is None else self._reduce.plan(schema)
        is_delete = event.op is _DELETE
        outcome = Outcome(
            (event.op, schema, event.table, event.source),
            reduced_event.op,
            reduced_event.table,
            reduced_event.schema,
            reduced_event.source,
            {},
            plan,
            (is_delete and not self._carries.delete_partial, not self._carries.absent),
            reduced_event.before is not None,
            reduced_event.key is not None,
            reduced_event.position is not None,
            reduced_event.details is event.details,
            reduced_event.schema is None,
        )
        own: dict[Loss, None] = {}
        if reduced_event.before is not None and event.before is not None:
            self._image(event.before, outcome, 0, own)
        if event.after is not None:
            self._image(event.after, outcome, 1, own)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known.setdefault(look, outcome).losses[tuple(own)] = losses
        return reduced, losses


def _stated(transaction: Transaction) -> tuple[bool, ...]:
    # an empty id tells nothing, and so its loss is none
    return tuple(part in (None, "") for part in msgspec.structs.astuple(transaction))


def _kind(event: DataChange) -> int:
    """Return what decides whether the image before of an update is written, and how."""
    before = event.before or {}
    return is_key_change(event) + 2 * is_complete(before, event.schema, event.before_holds)
