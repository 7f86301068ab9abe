"""The public name of a row of causes: `tailscope.weighing.Cause`."""

from tailscope.statistics.ranking import Cause

__all__ = ["Cause"]
