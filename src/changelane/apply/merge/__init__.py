# SPDX-License-Identifier: Apache-2.0
"""The merge rule for a batch: operations update the registers of keys."""
