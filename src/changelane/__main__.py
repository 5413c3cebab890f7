# SPDX-License-Identifier: Apache-2.0
"""``python -m changelane``: the command line."""

from changelane.cli import main

main()
