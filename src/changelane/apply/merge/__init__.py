# SPDX-License-Identifier: Apache-2.0
"""The merge rule: operations of a batch update the registers of keys."""
