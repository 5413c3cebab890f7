# SPDX-License-Identifier: Apache-2.0
"""Fetch Spark's jars into the folder that changelane's Spark sessions use.

Usage: fetch_jars.py NAME...   (names of changelane.spark.jars.PACKAGES)

It lets spark-submit resolve the packages and run an empty program, so that what is fetched, and
where from, is what a session with the same settings will look for.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from changelane.spark.jars import PACKAGES, ivy_dir, packages


def fetch(names: list[str]) -> None:
    """Resolve these entries of the table; exit with Ivy's own words when that fails."""
    spark_home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "nothing.py")
        program.touch()
        command = [str(spark_home / "bin" / "spark-submit"), "--master", "local[1]"]
        command += ["--packages", packages(*names)]
        if ivy := ivy_dir():
            ivy.mkdir(parents=True, exist_ok=True)
            # sessions load what lies there: nothing of an older table may stay
            shutil.rmtree(ivy / "jars", ignore_errors=True)
            command += ["--conf", f"spark.jars.ivy={ivy}"]
        environment = os.environ | {
            "SPARK_HOME": str(spark_home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        done = subprocess.run(
            [*command, str(program)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-40:]), file=sys.stderr)
        sys.exit(
            f"changelane could not fetch Spark's jars ({packages(*names)}): see above why; "
            "check the network or proxy settings of Java and try again."
        )


def main() -> None:
    """Check the names and fetch."""
    names = sys.argv[1:]
    unknown = [name for name in names if name not in PACKAGES]
    if unknown or not names:
        sys.exit(f"usage: fetch_jars.py NAME..., each one of: {', '.join(PACKAGES)}")
    print(
        f"changelane: fetching Spark's jars once ({', '.join(names)}; about 1 minute)", flush=True
    )
    fetch(names)


if __name__ == "__main__":
    main()
