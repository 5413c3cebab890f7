# SPDX-License-Identifier: Apache-2.0
"""How change events become rows: registers that only grow.

Applying an event raises some registers of its table, so order, duplicates, batches and replays
cannot matter. :func:`steps` says what an event raises, :func:`resolve` raises it; both are pure.
"""

from changelane.apply.event_operations import MissingImageError, known, last_known, steps
from changelane.apply.keys import NoKeyError, canonical, key_bytes, key_values
from changelane.apply.merge.resolve import Resolution, reach, resolve
from changelane.apply.operations import Departure, Step, TableTruncate, Upsert
from changelane.apply.rejection import AMBIGUOUS, TOO_LATE, UNORDERED, Problem
from changelane.apply.row_state import (
    EMPTY,
    NOTHING,
    RULE,
    Cell,
    KeyState,
    Rule,
    base_of,
    is_live,
    join,
    newest,
    pack,
    row_of,
    settle,
    stored_state,
    typed,
    unpack,
)

__all__ = [
    "AMBIGUOUS",
    "EMPTY",
    "NOTHING",
    "RULE",
    "TOO_LATE",
    "UNORDERED",
    "Cell",
    "Departure",
    "KeyState",
    "MissingImageError",
    "NoKeyError",
    "Problem",
    "Resolution",
    "Rule",
    "Step",
    "TableTruncate",
    "Upsert",
    "base_of",
    "canonical",
    "is_live",
    "join",
    "key_bytes",
    "key_values",
    "known",
    "last_known",
    "newest",
    "pack",
    "reach",
    "resolve",
    "row_of",
    "settle",
    "steps",
    "stored_state",
    "typed",
    "unpack",
]
