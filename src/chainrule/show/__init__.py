"""Pictures of what the library really does, as text and SVG, read off the objects themselves."""

from chainrule.show._memory import Picture, memory

__all__ = ["Picture", "memory"]
