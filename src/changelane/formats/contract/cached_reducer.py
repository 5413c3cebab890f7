# SPDX-License-Identifier: Apache-2.0
"""The fast path of :class:`Reducer`: similar row changes share one cached reduction.

The losses of an event hardly depend on its row: two changes of one table with the same
:data:`CacheKey` lose the same. The :class:`Reducer` reduces the first of them, and later ones reuse
its parts. Their images are reduced one by one; a change whose images lose something else takes the
full path.
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
    has_partial_after,
    is_complete,
    is_key_change,
    lists_sent_columns_only,
)
from changelane.formats.contract.capabilities import Carries, SchemaPlan
from changelane.formats.contract.losses import Loss
from changelane.formats.contract.reducer import Reduced, Reducer
from changelane.schema import TableId, TableSchema

_MAX_ENTRIES: Final = 4096
# module names, because a look-up in the enum class is slow
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_UNKNOWN: Final = Completeness.UNKNOWN

CacheKey = tuple[Any, ...]
"""The traits of a change that decide its reduction: identities of its parts, and flags."""


class CachedReduction(msgspec.Struct, frozen=True, gc=False):
    """The reduction of a change, apart from its images.

    Attributes:
        parts: The objects whose identities are in the cache key; kept, so that no other object
            gets their ``id``.
        losses: All losses of a change, by the losses of its images alone.
        plan: The reduction of its images; ``None`` without a schema.
        fills: Whether missing columns of the images before and after become NULL.
        has_before: Whether the reduced change has a before image; likewise the others.
        after_holds: The completeness of the after image; ``None`` = that of the change.
    """

    parts: tuple[object, ...]
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
    has_completeness: bool
    after_holds: Completeness | None


class CachedReducer:
    """Reduces events to a format's capabilities, with the same result as :class:`Reducer`.

    Attributes:
        reducer: The reducer of changes that are not cached.
    """

    def __init__(self, carries: Carries) -> None:
        self.reducer = Reducer(carries)
        self._carries = carries
        (self._source_size, _), (self._process_size, _) = self.reducer.units.values()
        self._cache: dict[CacheKey, CachedReduction] = {}

    def __call__(self, event: ChangeEvent) -> Reduced:
        """Return the part of *event* that the format carries (up to two events), and the losses."""
        if type(event) is not DataChange:
            return self.reducer(event)
        op, before, after = event.op, event.before, event.after
        schema, table, source = event.schema, event.table, event.source
        position, transaction, details = event.position, event.transaction, event.details
        source_ns, process_ns = event.source_time_ns, event.process_time_ns
        source_rest = process_rest = 0
        if source_ns is not None and (size := self._source_size) != 1:
            source_rest = source_ns % size if size else 1
        if process_ns is not None and (size := self._process_size) != 1:
            process_rest = process_ns % size if size else 1
        cache_key: CacheKey = (
            id(op),
            id(schema),
            id(table),
            id(source),
            type(position),
            event.key is None,
            lists_sent_columns_only(event),
            schema is None and has_partial_after(event),
            None if before is None else op is _UPDATE and _before_kind(event),
            None if transaction is None else empty_fields(transaction),
            bool(details),
            not source_rest,
            not process_rest,
        )
        cached = self._cache.get(cache_key)
        if cached is None:
            return self._reduce_and_cache(event, cache_key)
        losses: dict[Loss, None] = {}
        if before is not None:
            before = self._image(before, cached, 0, losses) if cached.has_before else None
        if after is not None:
            plan = cached.plan
            after = (
                self.reducer.untyped(after, losses)
                if plan is None
                else plan.image(after, losses, fill=cached.fills[1])
            )
        all_losses = cached.losses.get(tuple(losses))
        if all_losses is None:
            return self._reduce_and_cache(event, cache_key)
        if transaction is not None:
            transaction = self.reducer.transaction(transaction, losses)
        if source_rest and source_ns is not None:
            source_ns = source_ns - source_rest if self._source_size else None
        if process_rest and process_ns is not None:
            process_ns = process_ns - process_rest if self._process_size else None
        reduced = DataChange(
            cached.op,
            cached.table,
            event.key if cached.has_key else None,
            before,
            after,
            cached.schema,
            position if cached.has_position else None,
            transaction,
            cached.source,
            source_ns,
            process_ns,
            event.before_holds if cached.has_completeness else _UNKNOWN,
            event.after_holds if cached.after_holds is None else cached.after_holds,
            details if cached.has_details else NO_DETAILS,
        )
        return (reduced,), all_losses

    def _image(
        self, image: Image, cached: CachedReduction, side: int, losses: dict[Loss, None]
    ) -> Image:
        plan = cached.plan
        if plan is None:
            return self.reducer.untyped(image, losses)
        return plan.image(image, losses, fill=cached.fills[side])

    def _reduce_and_cache(self, event: DataChange, cache_key: CacheKey) -> Reduced:
        """Reduce a change on the full path, and cache the reduction if it is one change."""
        reduced, losses = self.reducer(event)
        if len(reduced) != 1 or not isinstance(reduced[0], DataChange):
            return reduced, losses
        reduced_event, schema = reduced[0], event.schema
        plan = None if schema is None else self.reducer.plan(schema)
        is_delete = event.op is _DELETE
        has_completeness = reduced_event.schema is None or lists_sent_columns_only(reduced_event)
        keeps_after_holds = has_completeness and reduced_event.after_holds is event.after_holds
        cached = CachedReduction(
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
            has_completeness,
            None if keeps_after_holds else reduced_event.after_holds,
        )
        image_losses: dict[Loss, None] = {}
        if reduced_event.before is not None and event.before is not None:
            self._image(event.before, cached, 0, image_losses)
        if event.after is not None:
            self._image(event.after, cached, 1, image_losses)
        if len(self._cache) >= _MAX_ENTRIES:
            self._cache.clear()
        self._cache.setdefault(cache_key, cached).losses[tuple(image_losses)] = losses
        return reduced, losses


def empty_fields(transaction: Transaction) -> tuple[bool, ...]:
    """Return for each field whether it has no content, so that its omission is no loss."""
    return tuple(part in (None, "") for part in msgspec.structs.astuple(transaction))


def _before_kind(event: DataChange) -> int:
    """Return whether an update is a key change (1), and has a full before image (2), as a sum."""
    before = event.before or {}
    return is_key_change(event) + 2 * is_complete(before, event.schema, event.before_holds)
