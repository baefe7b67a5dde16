"""`python -m chainrule`: the same as the `chainrule` command."""

from __future__ import annotations

import sys

from chainrule.cli import main

sys.exit(main())
