# SPDX-License-Identifier: Apache-2.0
"""Tables follow the schemas and the statements of their sources."""
