"""Queries over the rows of a ledger, and the engines that run them.

`connect` chooses the engine: DuckDB, Spark or ClickHouse, a module each. `grid`, `spans`, `measure`
and `draw` are the queries. They are Ibis expressions, so every engine runs the same ones.
"""
