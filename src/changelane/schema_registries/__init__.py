# SPDX-License-Identifier: Apache-2.0
"""Schema registries: one module per way to reach them.

Each has ``open_location(location) -> SchemaRegistry``
(:mod:`changelane.formats.contract.schema_registry`).
"""
