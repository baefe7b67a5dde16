"""Pictures of what the library really does, as text and SVG, read off the objects themselves."""

from chainrule.show._formula import Formula, formula
from chainrule.show._memory import Picture, memory
from chainrule.show._tape import Tape, tape
from chainrule.show._walk import Walk, walk

__all__ = ["Formula", "Picture", "Tape", "Walk", "formula", "memory", "tape", "walk"]
