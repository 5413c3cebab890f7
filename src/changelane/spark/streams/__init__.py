# SPDX-License-Identifier: Apache-2.0
"""What ``changelane run`` is made of: sources, checkpoints, and the streams that they feed."""
