"""A printed rule gives each operand its own gradient, whichever variable the graph made first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

# In a process of its own: expressions are shared, so that only the first ones made have an order.
SCRIPT = """
from chainrule.calculus import var
second = var("a1")  # held, so that it is older than a0
import chainrule as cr
a, b = cr.tensor([2.0], requires_grad=True), cr.tensor([3.0], requires_grad=True)
(a * b).sum().backward()
print(a.grad.item(), b.grad.item())
"""


def test_a_product_gives_each_factor_the_other_one():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE)}
    )
    assert done.stdout.split() == ["3.0", "2.0"]
