# SPDX-License-Identifier: Apache-2.0
"""The streaming queries of ``changelane run``."""
