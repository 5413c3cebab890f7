# SPDX-License-Identifier: Apache-2.0
"""What changelane needs around Spark: its jars, a session with exact settings, a broker to try."""
