"""Servers that write down the truth of each request, and the comparison with a ledger."""
