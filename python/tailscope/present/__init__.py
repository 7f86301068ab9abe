"""Explanations for people: text for the terminal, the HTML report, tables and charts in a notebook.

Nothing here computes a figure.
"""
