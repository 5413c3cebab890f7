# SPDX-License-Identifier: Apache-2.0
"""The Spark session: settings, jars, executors, and a development broker."""
