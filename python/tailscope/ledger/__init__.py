"""Ledgers: where they lie, whether they are whole, what is in them and how they were recorded.

`ledger.open_ledger` finds and checks the files. Nothing here runs a query over the rows.
"""
