"""What makes a percentile slow: all that `explain` and `diff` compute, without how it is shown.

`explanation.explain` answers for one ledger, `diff.diff` for two.
"""
