"""Servers that nobody wrote for Tailscope, and what their clients see beside what it records."""
