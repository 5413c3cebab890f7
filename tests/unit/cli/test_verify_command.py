# SPDX-License-Identifier: Apache-2.0
"""The options of ``changelane verify``, and the end of its continuous mode."""

import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from changelane.cli import main
from changelane.cli import verify as verify_module
from changelane.spark.verify.continuous import ChunkStep
from changelane.spark.verify.progress import TableProgress
from changelane.spark.verify.report import TableReport


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--metrics-port", "9400"], "--metrics-port needs --continuous"),
        (["--continuous", "--json", "x.json"], "--continuous writes to stdout"),
        (["--interval", "-1"], "Invalid value for '--interval'"),
        (["--html", "no/such/x.html"], "the folder of no/such/x.html does not exist"),
    ],
)
def test_options_that_contradict_each_other_are_rejected(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    config = {
        "name": "shop",
        "source": {"type": "files", "path": str(tmp_path), "format": "native-json"},
        "sink": {"type": "delta", "path": str(tmp_path / "lake")},
    }
    file = tmp_path / "shop.yaml"
    file.write_bytes(msgspec.json.encode(config))
    result = CliRunner().invoke(main, ["verify", str(file), *arguments])
    assert result.exit_code == 2
    assert sentence in result.output


def test_a_continuous_verification_serves_metrics_until_it_is_stopped(
    capsys: pytest.CaptureFixture[str], unused_port: int
) -> None:
    pytest.importorskip("prometheus_client")
    pages: list[bytes] = []
    report = TableReport(table="shop.t", outcome="equal")
    step = ChunkStep(report=report, chunk=0, chunk_count=2, proven_share=0.5, oldest_time_s=None)
    progress: dict[str, TableProgress] = {}

    def steps() -> Iterator[ChunkStep | None]:
        progress["shop.t"] = TableProgress(chunk_count=2).after(
            report, chunk=0, chunk_count=2, time_s=1
        )
        yield step
        yield None  # a chunk that failed
        with urllib.request.urlopen(f"http://127.0.0.1:{unused_port}/metrics") as response:
            pages.append(response.read())
        os.kill(os.getpid(), signal.SIGTERM)
        yield step

    former = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    verification: Any = SimpleNamespace(steps=steps, progress=progress)
    try:
        verify_module.verify_until_stopped(verification, interval_s=0, metrics_port=unused_port)
    finally:
        for number, handler in former:
            signal.signal(number, handler)
    lines = capsys.readouterr().out.splitlines()
    assert [msgspec.json.decode(line)["proven_share"] for line in lines] == [0.5, 0.5]
    assert b'changelane_verified_share{table="shop.t"} 0.5' in pages[0]


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
