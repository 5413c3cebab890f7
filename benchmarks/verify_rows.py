# SPDX-License-Identifier: Apache-2.0
"""Measures `changelane verify` on a table whose rows are equal on both sides.

Usage: verify_rows.py [--product mariadb] [--rows 1000000]

A real server is started, as in the tests, with the table of orders of ``capture_snapshot.py``. A
run captures it and stays active; then the table is compared once. Any difference, and any row that
is not proven, is an error.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from capture_snapshot import fill_mariadb, fill_postgres, open_server
from process_tree import Job

ROOT: Final = Path(__file__).resolve().parents[1]
_LOAD_TIMEOUT_S: Final = 1800


def pipeline_of(server: Any, product: str, folder: Path) -> dict[str, Any]:
    """Return the pipeline from the database ``shop`` into Delta tables."""
    schema = "public" if product == "postgres" else "shop"
    source = {
        "type": product,
        "host": server.host,
        "port": server.port,
        "database": "shop",
        "user": server.user,
        "password": "${BENCHMARK_PASSWORD}",
        "tables": [f"{schema}.*"],
        "segments": str(folder / "log"),
        "snapshot": "spark",
        "publish_interval": "1 second",
        # an idle server sends no position before the next heartbeat
        "heartbeat_interval": "2 seconds",
    }
    if product == "postgres":
        source["publication"] = "changelane_shop"
    sink = {"type": "delta", "path": str(folder / "lake")}
    options = {"trigger": "continuous", "interval": "2 seconds"}
    return {"name": "shop", "source": source, "sink": sink, "options": options}


def wait_for_batch(run: Job) -> None:
    """Wait until the run has applied a batch: the first load is one."""
    deadline = time.monotonic() + _LOAD_TIMEOUT_S
    while time.monotonic() < deadline:
        run.check()
        if '"batch"' in run.log.read_text(errors="replace"):
            return
        time.sleep(1)
    raise SystemExit("the tables do not have the rows in time")


def main() -> None:
    """Load, compare, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--product", choices=("mariadb", "postgres"), default="mariadb")
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with open_server(arguments.product) as server, tempfile.TemporaryDirectory() as name:
        (fill_mariadb if arguments.product == "mariadb" else fill_postgres)(server, arguments.rows)
        folder = Path(name)
        file, report_file = folder / "shop.yaml", folder / "report.json"
        file.write_text(json.dumps(pipeline_of(server, arguments.product, folder)))
        environment = {"BENCHMARK_PASSWORD": server.password, "PYTHONPATH": str(ROOT / "src")}
        environment = {**os.environ, **environment}
        command = [sys.executable, "-m", "changelane"]
        run = Job([*command, "run", str(file)], folder / "run.txt", environment)
        try:
            wait_for_batch(run)
            job = Job(
                [*command, "verify", str(file), "--json", str(report_file)],
                folder / "verify.txt",
                environment,
            )
            usage = job.wait()
        finally:
            run.stop()
        (table,) = json.loads(report_file.read_bytes())["tables"]
    if table["outcome"] != "equal" or table["row_count"] != arguments.rows:
        raise SystemExit(f"{table['outcome']}: {len(table['differences'])} differences")
    print(
        f"{arguments.product}: {arguments.rows:,} rows, 0 differences, {table['duration_s']:.1f} s "
        f"for the table, {usage.wall:.1f} s and {usage.processor:.1f} s of processors in all"
    )


if __name__ == "__main__":
    main()
