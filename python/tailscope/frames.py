"""Data frames of an explanation, under their public name: `tailscope.frames.pairs(found)`."""

from tailscope.present.frames import classes, curves, pairs

__all__ = ["classes", "curves", "pairs"]
