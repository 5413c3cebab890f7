# SPDX-License-Identifier: Apache-2.0
"""The report of a verification as one page of HTML, without scripts and without other files. Pure.

Names and keys come from databases, so that every text on the page is escaped, and the page forbids
scripts and connections.
"""

import html
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from changelane.conversion.terminal_text import printable
from changelane.spark.verify.report import (
    ChunkReport,
    KeyDifference,
    TableReport,
    VerificationReport,
    key_text,
)

MAX_ROWS: Final = 1000
"""The number of differences of a table that the page lists; the JSON has all."""
_CELL: Final = 14
_CELLS_PER_LINE: Final = 64
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8885; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; overflow-wrap: anywhere }
table { border-collapse: collapse; margin: .6rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .8rem .2rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere }
th, td.number { overflow-wrap: normal; white-space: nowrap }
td.number { text-align: right; font-variant-numeric: tabular-nums }
svg { display: block; max-width: 100%; height: auto; margin: .5rem 0 }
.equal { fill: #2e9e5b; color: #2e9e5b } .different { fill: #d63a3a; color: #d63a3a }
.unsearched { fill: #8d2bc4; color: #8d2bc4 }
.unproven, .repaired { color: #b7791f } .unverified { color: #888 }
.mark { stroke: #fff; stroke-width: 2; fill: none }
.badge { font-weight: 600 } .key { font-family: ui-monospace, monospace; font-size: .9em }
"""
_CLASSES: Final = {
    "equal": "equal",
    "different": "different",
    "repaired": "repaired",
    "not proven": "unproven",
    "not verified": "unverified",
}
_LEGEND: Final = (
    '<p><span class="equal">&#9632;</span> equal &nbsp; <span class="different">&#9632;</span> has '
    'differences (with a cross) &nbsp; <span class="unsearched">&#9632;</span> differs, its rows '
    "were not searched (with a stroke)</p>"
)


def html_page(report: VerificationReport) -> str:
    """Return the page."""
    return "\n".join(_page_lines(report)) + "\n"


def _page_lines(report: VerificationReport) -> Iterator[str]:
    title = f"Verification of {_escaped(report.pipeline)}"
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield (
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )
    yield '<meta name="viewport" content="width=device-width">'
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    yield from _table_of(
        ("table", "result", "rows", "differences", "not proven", "position", "seconds"),
        (_summary_cells(number, table) for number, table in enumerate(report.tables)),
    )
    yield _LEGEND
    for number, table in enumerate(report.tables):
        yield from _section(number, table)
    yield "</body></html>"


def _summary_cells(number: int, table: TableReport) -> Sequence[str]:
    return (
        f'<td><a href="#t{number}">{_escaped(table.table)}</a></td>',
        f"<td>{_badge(table)}</td>",
        _number_cell(f"{table.row_count:,}"),
        _number_cell(f"{len(table.differences):,}"),
        _number_cell(f"{100 * table.unproven_share:.2f} %"),
        _cell(table.position),
        _number_cell(f"{table.duration_s:.1f}"),
    )


def _section(number: int, table: TableReport) -> Iterator[str]:
    yield f'<h2 id="t{number}">{_escaped(table.table)}</h2>'
    reason = f": {_escaped(table.reason)}" if table.reason else ""
    yield f"<p>{_badge(table)}{reason}</p>"
    if table.chunks:
        yield "<p>The chunks in the order of the keys:</p>"
        yield from _picture(table.chunks)
    yield from _columns(table)
    kinds = Counter(difference.kind for difference in table.differences)
    if kinds:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        yield f"<p>{len(table.differences):,} differences: {_escaped(counts)}</p>"
        yield from _table_of(
            ("kind", "key", "columns", "repair"),
            map(_difference_cells, table.differences[:MAX_ROWS]),
        )
        yield from _remainder(len(table.differences), "differences")
    if table.unproven_keys:
        yield "<p>Rows that changed in each reading, and are not proven:</p>"
        keys = (_key_cells(key) for key in table.unproven_keys[:MAX_ROWS])
        yield from _table_of(("key",), keys)
        yield from _remainder(len(table.unproven_keys), "rows")


def _picture(chunks: Sequence[ChunkReport]) -> Iterator[str]:
    """Yield a picture with one square for each chunk, line by line."""
    columns = min(len(chunks), _CELLS_PER_LINE)
    lines = -(-len(chunks) // _CELLS_PER_LINE)
    width, height = columns * _CELL, lines * _CELL
    different = sum(_class_of(chunk) != "equal" for chunk in chunks)
    label = f"{len(chunks):,} chunks, {different:,} with differences"
    yield (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">'
    )
    for index, chunk in enumerate(chunks):
        x, y = index % _CELLS_PER_LINE * _CELL, index // _CELLS_PER_LINE * _CELL
        kind, size = _class_of(chunk), _CELL - 2
        yield f"<g><title>{_escaped(_chunk_text(chunk))}</title>"
        yield f'<rect class="{kind}" x="{x + 1}" y="{y + 1}" width="{size}" height="{size}"/>'
        strokes = f"M{x + 4} {y + 4}l6 6" if kind != "equal" else ""
        strokes += f"M{x + 10} {y + 4}l-6 6" if kind == "different" else ""
        if strokes:
            yield f'<path class="mark" d="{strokes}"/>'
        yield "</g>"
    yield "</svg>"


def _class_of(chunk: ChunkReport) -> str:
    if chunk.is_unsearched:
        return "unsearched"
    return "different" if chunk.difference_count else "equal"


def _chunk_text(chunk: ChunkReport) -> str:
    end = f"up to {key_text(chunk.last_key)}" if chunk.last_key else "up to the last key"
    result = f"{chunk.difference_count:,} differences"
    if chunk.is_unsearched:
        result = "differs, not searched"
    return f"chunk {chunk.number}, {end}: {chunk.row_count:,} rows, {result}"


def _columns(table: TableReport) -> Iterator[str]:
    """Yield the columns, with the number of differences of each."""
    counts = Counter(column for difference in table.differences for column in difference.columns)
    if different := [column for column in table.compared_columns if counts[column]]:
        numbers = ((_cell(column), _number_cell(f"{counts[column]:,}")) for column in different)
        yield from _table_of(("column", "rows with another value"), numbers)
    if table.compared_columns:
        yield f"<p>Compared columns: {_escaped(', '.join(table.compared_columns))}</p>"
    if table.unproven_columns:
        rows = ((_cell(name), _cell(reason)) for name, reason in table.unproven_columns.items())
        yield from _table_of(("column that is not proven", "reason"), rows)


def _difference_cells(difference: KeyDifference) -> Sequence[str]:
    columns = ", ".join(difference.columns)
    return (
        _cell(difference.kind),
        *_key_cells(difference.key),
        _cell(columns),
        _cell(difference.repair),
    )


def _key_cells(key: dict[str, str | None]) -> Sequence[str]:
    return (f'<td class="key">{_escaped(key_text(key))}</td>',)


def _remainder(count: int, noun: str) -> Iterator[str]:
    if count > MAX_ROWS:
        yield f"<p>and {count - MAX_ROWS:,} more {noun}, which the JSON has</p>"


def _table_of(names: Iterable[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"<table><thead><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr></thead><tbody>"
    for cells in rows:
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table>"


def _badge(table: TableReport) -> str:
    return f'<span class="badge {_CLASSES[table.outcome]}">{table.outcome}</span>'


def _cell(text: str) -> str:
    return f"<td>{_escaped(text)}</td>"


def _number_cell(text: str) -> str:
    return f'<td class="number">{text}</td>'


def _escaped(text: str) -> str:
    """Return a text for any place of the page: control characters are visible, too."""
    return html.escape(printable(text))
