# SPDX-License-Identifier: Apache-2.0
"""``changelane profiles``: the profiles of producers, for topics, keys and partitions."""

from collections.abc import Mapping

import click
import msgspec

from changelane import profiles as registry


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def profiles(names: tuple[str, ...], *, output: str) -> None:
    """List the producer profiles (or some by name): formats, options and defaults.

    docs/profiles.md has the rules of each profile, with their sources.
    """
    descriptions = {name: _description_of(name) for name in names or registry.names()}
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(descriptions)))
        return
    for name, description in descriptions.items():
        click.echo(f"{name}: {description.about}")
        click.echo(f"  formats  {', '.join(description.formats)}")
        for option, default in description.options.items():
            click.echo(f"  option   {option}={msgspec.json.encode(default).decode()}")


class _ProfileDescription(msgspec.Struct, frozen=True):
    about: str
    formats: tuple[str, ...]
    options: Mapping[str, object]


def _description_of(name: str) -> _ProfileDescription:
    module = registry.module(name)
    title = (module.__doc__ or "").partition("\n")[0].partition(": ")[2]
    options = module.Options()
    return _ProfileDescription(title, tuple(module.FORMATS), msgspec.structs.asdict(options))
