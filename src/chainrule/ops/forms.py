"""The eager call of an elementwise operation: three forms, each a closure over one primitive.

The common case is written out (facts: a generic wrapper costs twice the operation on small
arrays): NumPy float32 or float64, one dtype, tensors or a Python number. Everything else goes to
`slow`, which records the same rule.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe as frame  # pyright: ignore[reportPrivateUsage]
from typing import Any

import numpy as np
from numpy import asarray, ndarray

from chainrule.autograd.node import MAKERS, Node
from chainrule.autograd.state import is_grad_enabled
from chainrule.ops.rules import ElementwiseRule, rule_for
from chainrule.storage import CLOCK

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
Function = Callable[..., Any]
new = object.__new__
MAKERS.append(globals())


def unary(name: str, fn: Function, slow: Function) -> Function:
    """`op(x)`."""
    rule: ElementwiseRule | None = None

    def operation(a: Any, /) -> Any:
        nonlocal rule
        try:
            x = a._a
        except AttributeError:
            return slow(a)
        if type(x) is not ndarray or ((d := x.dtype) is not F32 and d is not F64):
            return slow(a)
        r = fn(x)
        if type(r) is not ndarray:
            r = asarray(r)
        t = new(type(a))
        t._a = r
        t._s = None
        na = a.node
        if na is None or not is_grad_enabled():
            t.node = None
            return t
        if rule is None:
            rule = rule_for(name, "T", (True,))
        f = frame(1)
        n: Any = new(Node)
        n.rule = rule
        k = rule.keeps
        n.saved = (r,) if k == 2 else (a,) if k == 1 else () if k == 0 else (a, r)
        n.parents = (na,)
        n.code = f.f_code
        n.lasti = f.f_lasti
        n.shape = r.shape
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
        t.node = n
        return t

    return operation


def binary(
    name: str, fn: Function, slow: Function, scalar: Function, default: float | None
) -> Function:
    """`op(x, y)`; a Python number as `y` goes to `scalar`."""
    rules: list[ElementwiseRule | None] = [None, None, None, None]

    def operation(a: Any, b: Any = default, /) -> Any:
        kind = type(a)
        if type(b) is not kind:
            return scalar(a, b) if type(b) is float or type(b) is int else slow(a, b)
        try:
            x = a._a
            y = b._a
        except AttributeError:
            return slow(a, b)
        d = x.dtype
        if d is not y.dtype or (d is not F32 and d is not F64):
            return slow(a, b)
        try:
            r = fn(x, y)
        except ValueError:
            return slow(a, b)  # which explains shapes that do not broadcast
        if type(r) is not ndarray:
            r = asarray(r)
        t = new(kind)
        t._a = r
        t._s = None
        na = a.node
        nb = b.node
        if (na is None and nb is None) or not is_grad_enabled():
            t.node = None
            return t
        rule = rules[(na is not None) + 2 * (nb is not None)]
        if rule is None:
            need = (na is not None, nb is not None)
            rule = rules[need[0] + 2 * need[1]] = rule_for(name, "TT", need)
        f = frame(1)
        n: Any = new(Node)
        n.rule = rule
        k = rule.keeps  # bit 0: a, bit 1: b, bit 2: the output
        n.saved = (
            (a, b) if k == 3
            else (a,) if k == 1
            else (b,) if k == 2
            else () if k == 0
            else rule.keep(a, b, r)
        )  # fmt: skip
        n.parents = (na, nb)
        n.code = f.f_code
        n.lasti = f.f_lasti
        n.shape = r.shape
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
        t.node = n
        return t

    return operation


def with_number(name: str, fn: Function, slow: Function, number_first: bool = False) -> Function:
    """`op(x, number)`, or `op(number, x)`; called as `form(x, number)` either way."""
    rule: ElementwiseRule | None = None
    kinds, need = ("ST", (False, True)) if number_first else ("TS", (True, False))
    # `x * 2` passes through `binary` first, `2 * x` through the reflected operator.

    def operation(a: Any, b: Any, /) -> Any:
        nonlocal rule
        try:
            x = a._a
        except AttributeError:
            return slow(b, a) if number_first else slow(a, b)
        if type(x) is not ndarray or ((d := x.dtype) is not F32 and d is not F64):
            return slow(b, a) if number_first else slow(a, b)
        try:
            r = fn(b, x) if number_first else fn(x, b)
        except OverflowError:  # an int beyond float64, which `slow` explains
            return slow(b, a) if number_first else slow(a, b)
        if type(r) is not ndarray:
            r = asarray(r)
        t = new(type(a))
        t._a = r
        t._s = None
        na = a.node
        if na is None or not is_grad_enabled():
            t.node = None
            return t
        if rule is None:
            rule = rule_for(name, kinds, need)
        f = frame(2)
        n: Any = new(Node)
        n.rule = rule
        if number_first:
            n.saved = rule.keep(b, a, r) if rule.keeps else ()
            n.parents = (None, na)
        else:
            n.saved = rule.keep(a, b, r) if rule.keeps else ()
            n.parents = (na, None)
        n.code = f.f_code
        n.lasti = f.f_lasti
        n.shape = r.shape
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
        t.node = n
        return t

    return operation
