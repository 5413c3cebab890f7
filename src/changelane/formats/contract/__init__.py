# SPDX-License-Identifier: Apache-2.0
"""The interface of formats: capabilities, losses, options, serialization."""
