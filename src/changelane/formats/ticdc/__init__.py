# SPDX-License-Identifier: Apache-2.0
"""The formats of TiCDC, which captures changes of TiDB."""

from typing import Final

from changelane.event import Source

SOURCE: Final = Source(product="tidb", connector="ticdc")
