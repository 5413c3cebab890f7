# SPDX-License-Identifier: Apache-2.0
"""What is done between batches and by command: maintenance, purge, and what is known of a lake."""
