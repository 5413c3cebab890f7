# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/ that are generated. ``make golden`` calls it.

``--check`` writes nothing and ends with 1 when a page is not what it would write.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lake_types_page
import pipeline_page

from changelane import formats, get_codec
from changelane.conversion.loss_report import losses_between
from changelane.formats.contract.losses import LOSSES as GROUPS
from changelane.formats.contract.losses import loss_class
from changelane.reason_codes import ReasonCode
from changelane.testing.value_outcomes import ROWS, Fate, Row, outcome

DOCS = Path(__file__).resolve().parent.parent / "docs"
PRODUCTS = {"mysql": "MySQL", "postgresql": "PostgreSQL", "oracle": "Oracle"}

LOSSES = """\
# Losses between formats

For each source format, the possible losses of a conversion to each other format, with default
options. `make golden` generates the page from the losses that the encoders report, and a test
checks it; `changelane formats --losses A B` lists one pair. A row has one loss and all formats with
this loss; `all` are all other formats.

A loss is of class **data** (a value, the state of a column, an operation, a key) or **metadata**
(the source block, types and nullability, transaction and position). By default, losses of metadata
pass and are counted in the report of the run, with one warning for a lost position or part of a
table's name. A loss of data makes the event a failure. The loss of a type is metadata, because
its values are written in full, as text or in a wider type; the loss of a value is data.

The option `on_loss` changes this, for all losses (`raise`, `warn`, `ignore`) or by name:

```yaml
sink:
  on_loss: {accept: [metadata, schema.nullable, value.float], else: raise}
```

The same on the command line is `changelane convert --accept metadata,value.float --on-loss raise`,
and in Python `convert(..., on_loss=LossPolicy(accept=("metadata", "value.float")))`.

## Names

`accept` takes `data`, `metadata`, a group of this table, or one loss such as `schema.nullable`. A
loss `type:uuid` in a report is `type.uuid` here; `accept` takes both spellings.
"""

TYPES = """\
# Values in each format

One value of each source type, written in each format and read again, with default options.
`make golden` generates the page, and a test checks it. In every format, a changed value is
reported.

- **exact**: the value that is read has the same type and is equal.
- **exact as** *type*: the value is equal and has another type, which is in the message or is a
  reported loss of metadata.
- **exact, reported**: the value is equal, but the product of the format does not have this value;
  this is a reported loss, and such an event fails by default.
- **lossy**: the value is not written (usually it becomes NULL); this is a reported loss, and such
  an event fails by default.
- **refused**: the format cannot express the event. `cdl-debezium-json` supports PostgreSQL and
  openGauss only.
"""

BEGIN = "<!-- generated from changelane/reason_codes.py by `make golden` -->"
END = "<!-- end of the generated table -->"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(map(_cell, row))} |"


def losses() -> str:
    """Return the page of losses."""
    lines = [LOSSES, *_names(), ""]
    codecs = {name: get_codec(name) for name in formats.FORMATS}
    for source, codec in codecs.items():
        targets_by_loss: dict[tuple[str, str], list[str]] = {}
        free = []
        for target, other in codecs.items():
            lost = [] if target == source else losses_between(codec, other)
            if not lost and target != source:
                free.append(f"`{target}`")
            for loss in lost:
                targets_by_loss.setdefault(loss, []).append(f"`{target}`")
        lines.append(f"## From {source}\n")
        if free:
            lines.append(f"No losses to {', '.join(free)}.\n")
        every = len(codecs) - 1
        rows = [
            [
                f"`{field}`",
                loss_class(field),
                reason,
                "all" if len(targets) == every else ", ".join(targets),
            ]
            for (field, reason), targets in sorted(targets_by_loss.items())
        ]
        lines.extend(_table(["loss", "class", "reason", "target formats"], rows))
        lines.append("")
    return "\n".join(lines)


def _names() -> Iterator[str]:
    rows = []
    for name, group in GROUPS.items():
        parts = [f"`{name}.{part}`" for part in group.parts]
        other = loss_class(f"{name}.{group.others[0]}") if group.others else ""
        parts += [f"`{name}.{part}` ({other})" for part in group.others]
        if group.is_open:
            parts.append(f"`{name}.` with any name")
        rows.append([f"`{name}`", group.kind, group.meaning, ", ".join(parts)])
    yield from _table(["group", "class", "lost content", "single losses"], rows)


def types() -> str:
    """Return the page of values."""
    lines = [TYPES]
    codecs = {name: get_codec(name) for name in formats.FORMATS}
    for product, title in PRODUCTS.items():
        rows = [row for row in ROWS if row.product == product]
        lines.append(f"## {title}\n")
        header = ["type", "value", *(f"`{name}`" for name in codecs)]
        table = [
            [f"`{row.source_type}`", row.title or "ordinary"]
            + [_fate(name, row) for name in codecs]
            for row in rows
        ]
        lines.extend(_table(header, table))
        lines.append("")
    return "\n".join(lines)


def _fate(name: str, row: Row) -> str:
    row_outcome = outcome(get_codec(name), row)
    is_silent = row_outcome.fate is Fate.SILENT
    return f"**{row_outcome}**" if is_silent else str(row_outcome)


def quarantine() -> str:
    """Return the page of the quarantine: its own text, with the table of reason codes."""
    before, _, after = _stored("quarantine.md").partition(BEGIN)
    rows = [[f"`{code}`", code.cause, code.fix] for code in ReasonCode]
    table = "\n".join(_table(["reason code", "cause", "way out"], rows))
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after.partition(END)[2]}"


PAGES: dict[str, Callable[[], str]] = {
    "quarantine.md": quarantine,
    "losses.md": losses,
    "types.md": types,
    "pipeline.md": pipeline_page.pipeline,
    "lake-types.md": lake_types_page.lake_types,
}


def main() -> int:
    """Write the pages, or check them."""
    stale = [name for name, page in PAGES.items() if _stored(name) != page()]
    if "--check" not in sys.argv:
        for name in stale:
            (DOCS / name).write_text(PAGES[name](), "utf-8")
        return 0
    for name in stale:
        print(f"docs/{name} is not up to date: make golden", file=sys.stderr)
    return 1 if stale else 0


def _stored(name: str) -> str:
    path = DOCS / name
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
