# SPDX-License-Identifier: Apache-2.0
"""The state of a pipeline beside its tables: tombstones, offset log, quarantine."""
