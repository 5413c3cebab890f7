# SPDX-License-Identifier: Apache-2.0
"""Data files: Parquet, Avro and CSV files, as messages.

A data file has messages in its rows (:mod:`changelane.data_files.message_columns`), or rows of
tables, which become messages of ``native-json`` (:mod:`changelane.data_files.row_messages`).
"""
