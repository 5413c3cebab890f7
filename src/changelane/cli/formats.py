# SPDX-License-Identifier: Apache-2.0
"""``changelane formats``: what each format carries, and what a conversion loses."""

from collections.abc import Callable, Iterable
from typing import Final

import click
import msgspec

from changelane import formats as registry
from changelane.codec import get_codec
from changelane.conversion.loss_report import losses_between
from changelane.formats.contract.capabilities import AbsentMeans, Carries, SchemaDetail
from changelane.formats.contract.losses import loss_class
from changelane.types import LogicalType

_KINDS: Final = {
    "half": "halves of an update",
    "schema": "DDL",
    "truncate": "truncate",
    "transaction": "transactions",
    "watermark": "heartbeat",
    "message": "logical message",
    "tombstone": "tombstone",
    "control": "control",
}
_SCHEMAS: Final = {
    SchemaDetail.NONE: "no",
    SchemaDetail.SOURCE_TYPES: "source types",
    SchemaDetail.FULL: "full",
}
_ABSENT: Final = {
    AbsentMeans.NULL: "NULL",
    AbsentMeans.UNCHANGED: "unchanged",
    AbsentMeans.ERROR: "an error",
}


def _before(carries: Carries) -> str:
    if not carries.before:
        return "partial" if carries.partial_before else "no"
    return "full, partial" if carries.partial_before else "full"


def _column_states(carries: Carries) -> str:
    states = [
        state
        for state, is_carried in (("absent", carries.absent), ("unavailable", carries.unavailable))
        if is_carried
    ]
    return ", ".join(["NULL", *states])


def _named(parts: list[str], all_count: int) -> str:
    return "all" if len(parts) == all_count else ", ".join(parts) or "no"


_COLUMNS: Final[dict[str, Callable[[Carries], str]]] = {
    "operations": lambda c: " ".join(sorted((op.value for op in c.operations), key="crud".index)),
    "before": _before,
    "column states": _column_states,
    "missing column": lambda c: _ABSENT[c.absent_means],
    "key": lambda c: "no" if not c.key else "may change" if c.key_change else "yes",
    "schema": lambda c: _SCHEMAS[c.schema],
    "positions": lambda c: _named(sorted(c.positions), 7),
    "other events": lambda c: _named([t for k, t in _KINDS.items() if k in c.kinds], len(_KINDS)),
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--losses",
    nargs=2,
    metavar="A B",
    help="List what a conversion from format A to format B may lose.",
)
@click.option("--markdown", is_flag=True, help="The table as Markdown, as the README has it.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def formats(
    names: tuple[str, ...], *, losses: tuple[str, str] | None, markdown: bool, output: str
) -> None:
    """List the formats (or those named), and what each carries with its default options.

    Told of each: row operations (c insert, r snapshot read, u update, d delete); before images of
    updates; states of a column beside a value; what a column that is missing after an update
    means; whether the key columns are named; how much of the schema travels; positions; events
    that are no row changes.
    """
    if losses:
        _show_losses(*losses, output)
    elif output == "json":
        capabilities = {name: _as_json(get_codec(name).carries) for name in registry.names()}
        click.echo(msgspec.json.format(msgspec.json.encode(capabilities)))
    elif markdown:
        click.echo(markdown_table())
    else:
        for name, *cells in _rows(names or registry.names()):
            click.echo(name)
            for title, cell in zip(_COLUMNS, cells, strict=True):
                click.echo(f"  {title:<14} {cell}")


def _rows(names: Iterable[str]) -> list[list[str]]:
    return [
        [name, *(show(get_codec(name).carries) for show in _COLUMNS.values())] for name in names
    ]


def markdown_table() -> str:
    """Return the table of all formats in Markdown."""
    titles = ["format", *_COLUMNS]
    rows = [titles, ["---"] * len(titles)]
    rows.extend([f"`{row[0]}`", *row[1:]] for row in _rows(registry.names()))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _show_losses(source: str, target: str, output: str) -> None:
    losses = losses_between(get_codec(source), get_codec(target))
    if output == "json":
        shown = [
            {"field": field, "reason": reason, "class": loss_class(field)}
            for field, reason in losses
        ]
        click.echo(msgspec.json.format(msgspec.json.encode(shown)))
        return
    if not losses:
        click.echo(f"{target} carries everything that {source} can say.")
    width = max((len(field) for field, _ in losses), default=0)
    for field, reason in losses:
        click.echo(f"{field:<{width}}  {loss_class(field):<8}  {reason}")


def _as_json(carries: Carries) -> object:
    def plain(value: object) -> object:
        if isinstance(value, type) and issubclass(value, LogicalType):
            return value.__name__.lower()
        if isinstance(value, frozenset):
            return sorted(str(plain(item)) for item in value)
        return value

    return {field: plain(getattr(carries, field)) for field in carries.__struct_fields__}
