# SPDX-License-Identifier: Apache-2.0
"""changelane on Spark; the only package that imports pyspark."""
