"""Check that a backward or a kernel is right: gradcheck in every layout, `against` a reference.

Works on our functions and on PyTorch's, whichever tensors the caller holds.
"""

from chainrule.check.against import against
from chainrule.check.gradcheck import examine, examine_twice, gradcheck, gradgradcheck
from chainrule.check.report import GradcheckError, PrecisionWarning, Report, Row

__all__ = [
    "GradcheckError",
    "PrecisionWarning",
    "Report",
    "Row",
    "against",
    "examine",
    "examine_twice",
    "gradcheck",
    "gradgradcheck",
]
