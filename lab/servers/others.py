"""Servers that no test uses: packages and frameworks as their own documentation starts them."""

from __future__ import annotations

from servers.case import Case

OTHERS: dict[str, type[Case]] = {}
