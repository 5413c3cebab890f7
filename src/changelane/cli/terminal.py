# SPDX-License-Identifier: Apache-2.0
"""Tables and lines of a command's output, in which every name, value and figure is complete."""

import os
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNLIMITED: Final = 1_000_000
"""The width of an output that is no terminal."""
_MIN_TEXT_WIDTH: Final = 16
"""The width up to which a longer text may be folded."""
_SPACE: Final = 2


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: The title.
        is_text: Whether its cells may be folded; figures are aligned to the right.
    """

    name: str
    is_text: bool = True


def output_console() -> Console:
    """Return a console that prints texts to stdout as they are.

    Rich's own console replaces `:100:` with an emoji and `[red]` with a color, and assumes 80
    columns if stdout is no terminal. Here only the variable `COLUMNS` limits such an output.
    """
    console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
    if not console.is_terminal and not os.environ.get("COLUMNS", "").isdecimal():
        console.width = _UNLIMITED
    return console


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str]], console: Console) -> None:
    """Print a table; without space for its columns, each row is printed as lines of its own.

    Args:
        columns: The columns.
        rows: The cells of each row, without control characters.
        console: A console of :func:`output_console`.
    """
    table_rows = [list(row) for row in rows]
    widths = [
        max(map(cell_len, (column.name, *(row[index] for row in table_rows))))
        for index, column in enumerate(columns)
    ]
    min_widths = [
        min(width, _MIN_TEXT_WIDTH) if column.is_text else width
        for column, width in zip(columns, widths, strict=True)
    ]
    if sum(min_widths) + _SPACE * len(columns) > console.width:
        _print_blocks(columns, table_rows, console)
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(
            Text(column.name),
            justify="left" if column.is_text else "right",
            overflow="fold",
            no_wrap=not column.is_text,
        )
    for row in table_rows:
        table.add_row(*map(Text, row))
    console.print(table, soft_wrap=False)


def _print_blocks(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], console: Console
) -> None:
    """Print each row as lines with the name of a column and its cell, and a blank line after it."""
    width = max(cell_len(column.name) for column in columns)
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            title = column.name + " " * (width - cell_len(column.name))
            console.print(f"{title}  {cell}".rstrip())
        console.print()
