# SPDX-License-Identifier: Apache-2.0
"""Transforms: steps between reading and writing, one module each."""
