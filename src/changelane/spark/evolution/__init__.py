# SPDX-License-Identifier: Apache-2.0
"""Schema evolution: tables follow the schemas and DDL statements of their sources."""
