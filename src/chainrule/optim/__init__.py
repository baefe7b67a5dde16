"""Optimisers: they move parameters in place from the gradients that `backward()` left."""

from __future__ import annotations

from chainrule.optim import lr_scheduler as lr_scheduler
from chainrule.optim.adam import Adam as Adam
from chainrule.optim.adam import AdamW as AdamW
from chainrule.optim.optimizer import Optimizer as Optimizer
from chainrule.optim.sgd import SGD as SGD
