# SPDX-License-Identifier: Apache-2.0
"""Files of Maven that ``spark.jars.packages`` cannot name, downloaded once by Spark's Ivy."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import pyspark

from changelane.spark.runtime.jars import ivy_dir

SPARK = Path(pyspark.__file__).parent / "jars"
"""The folder of Spark's jars."""


def retrieved(name: str, ivy_file: str, *types: str) -> Path:
    """Return the folder of the files that an Ivy file names.

    Args:
        name: The name of the folder in that of fetched jars.
        ivy_file: The content of the Ivy file.
        types: The types of the files.
    """
    ivy = ivy_dir()
    assert ivy is not None
    folder = ivy / name
    if not folder.is_dir():
        ivy.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=ivy))
        (fresh / "ivy.xml").write_text(ivy_file)
        command = ["java", "-cp", f"{SPARK}/*", "org.apache.ivy.Main", "-warn"]
        command += ["-ivy", str(fresh / "ivy.xml"), "-cache", str(fresh / "cache")]
        command += ["-types", *types]
        target = fresh / "files" / "[artifact]-[revision](-[classifier]).[ext]"
        subprocess.run([*command, "-retrieve", str(target)], check=True, stdout=subprocess.DEVNULL)
        (fresh / "files").rename(folder)
        shutil.rmtree(fresh)
    return folder
