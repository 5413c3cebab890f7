# SPDX-License-Identifier: Apache-2.0
"""The checks of ``changelane check`` that read a source or a lake."""
