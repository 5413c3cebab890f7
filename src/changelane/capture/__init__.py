# SPDX-License-Identifier: Apache-2.0
"""Capture of databases: a change log of segments, which one fenced writer extends."""
