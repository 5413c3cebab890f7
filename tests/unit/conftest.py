# SPDX-License-Identifier: Apache-2.0
"""Lets the tests of this folder share modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `dts_records`
