# SPDX-License-Identifier: Apache-2.0
"""changelane beside Flink 2.0 (Paimon, Iceberg), on the same messages, one run each.

Each race checks by a reader that takes no part that the results have the rows of the messages.
Processor time is that of all processes of a peer, its start included (except in small and latency).

Usage: peers.py [--messages N] [RACE ...]
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import flink
import race_convert
import race_streams
import race_tables
from process_tree import Usage

from changelane.errors import ConfigError
from changelane.spark.runtime.dev_broker import broker

RACES: Final = {
    "convert": "a file of debezium-json messages to canal-json",
    "topics": "a topic of debezium-json messages to a topic of canal-json",
    "tables": "a topic of changes to a table with a primary key",
    "short": "the same with 1,000 messages: the cost of a start",
    "small": "1,000 updates every some seconds into a large table, in an endless run",
    "latency": "from a message to the commit with it, at a steady rate",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    races = "\n".join(f"  {name:<9} {what}" for name, what in RACES.items())
    result = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"races (default: all):\n{races}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("races", nargs="*", metavar="RACE", choices=[*RACES, []], default=[])
    result.add_argument("--messages", type=int, default=300_000, help="of convert, topics, tables")
    result.add_argument("--only", default="", help="a part of the names of peers (small, latency)")
    result.add_argument("--rows", type=int, default=2_000_000, help="of the table of small")
    result.add_argument("--rounds", type=int, default=10, help="batches of small")
    result.add_argument("--period", type=float, default=10.0, help="seconds between them")
    result.add_argument("--rate", type=int, default=1000, help="messages a second of latency")
    result.add_argument("--seconds", type=int, default=60, help="the length of latency")
    result.add_argument("--interval", type=float, default=1.0, help="seconds between its commits")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the named races, or all."""
    arguments = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the broker ends, too
    with_flink = has_flink()
    with broker() as kafka, tempfile.TemporaryDirectory() as name:
        for race in arguments.races or RACES:
            folder = Path(name, race)
            folder.mkdir()
            load = os.getloadavg()[0]
            print(f"\n{race}: {RACES[race]} (load average {load:.1f})", flush=True)
            run(race, arguments, folder, kafka.servers, with_flink=with_flink)
    return 0


def has_flink() -> bool:
    """Fetch Flink's jars if they are missing; return whether they are there."""
    try:
        flink.fetch()
    except ConfigError as error:
        reason = str(error).splitlines()[-1]
        print(f"Flink's jars are missing, so only changelane runs: {reason}", flush=True)
    return flink.is_fetched()


def run(
    race: str, arguments: argparse.Namespace, folder: Path, servers: str, *, with_flink: bool
) -> None:
    """Run a race and print its figures."""
    count = arguments.messages
    match race:
        case "convert":
            show(race_convert.from_files(count, folder, with_flink=with_flink), count)
        case "topics":
            show(race_convert.from_topic(count, folder, servers, with_flink=with_flink), count)
        case "tables":
            show(race_tables.load(count, folder, servers, race, with_flink=with_flink), count)
        case "short":
            show(race_tables.load(1000, folder, servers, race, with_flink=with_flink), 1000)
        case _:
            more = race_tables.LATEST if race == "latency" else {}
            for name, peer in (race_tables.PEERS | more).items():
                if arguments.only in name and (with_flink or not peer.needs_flink):
                    run_stream(race, name, arguments, folder / name, servers)


def run_stream(
    race: str, name: str, arguments: argparse.Namespace, folder: Path, servers: str
) -> None:
    """Run an endless race of a peer and print its figures."""
    if race == "small":
        small = race_streams.small_batches(
            name,
            folder,
            servers,
            rows=arguments.rows,
            rounds=arguments.rounds,
            period_s=arguments.period,
        )
        figures = (
            f"{small.processor:7.2f} s of processors a batch, {small.load:7.1f} s for the load"
        )
    else:
        latency = race_streams.latency(
            name,
            folder,
            servers,
            rate=arguments.rate,
            seconds=arguments.seconds,
            interval_s=arguments.interval,
        )
        figures = (
            f"median {latency.median:6.2f} s, 99 % below {latency.high:6.2f} s, "
            f"{latency.processor:5.2f} processors, {latency.commits} commits"
        )
        if latency.read_median is not None:
            figures += f"; median of reads {latency.read_median:6.2f} s, {latency.reads} reads"
    print(f"{name:<24} {figures}", flush=True)


def show(figures: Iterable[tuple[str, Usage]], count: int) -> None:
    """Print the figures of finished runs."""
    for name, usage in figures:
        print(
            f"{name:<24} {usage.processor:7.1f} s of processors, "
            f"{count / usage.processor:>9,.0f} messages a second of them; {usage.wall:7.1f} s, "
            f"peak memory {usage.peak_mb['all']:,} MB",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
