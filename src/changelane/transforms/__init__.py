# SPDX-License-Identifier: Apache-2.0
"""Transforms, one module each, between decoding and applying or encoding."""
