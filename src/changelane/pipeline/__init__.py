# SPDX-License-Identifier: Apache-2.0
"""The options of a pipeline: its sources, sinks, and the checks of its file."""
