"""The import path of the process that forks Python workers."""

from pathlib import Path

from changelane.spark.runtime.python_daemon import remove_archives_of_spark


def test_the_archives_of_the_installed_spark_are_removed(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    archives = [str(installed / "pyspark" / "python" / "lib" / f"{name}.zip") for name in "ab"]
    archives.append(str(installed / "pyspark" / "jars" / "spark-core.jar"))
    others = ["", str(tmp_path / "lib" / "a.zip"), str(installed)]
    paths = [*archives, *others]
    remove_archives_of_spark(paths)
    assert paths == others


def test_the_archives_of_a_spark_that_is_not_installed_stay(tmp_path: Path) -> None:
    paths = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), str(tmp_path)]
    paths.append(str(tmp_path / "elsewhere" / "pyspark" / "python" / "lib" / "pyspark.zip"))
    paths.append(str(tmp_path / "elsewhere" / "pyspark" / "jars" / "spark-core.jar"))
    expected = list(paths)
    remove_archives_of_spark(paths)
    assert paths == expected
