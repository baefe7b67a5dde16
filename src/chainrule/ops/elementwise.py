"""Elementwise operations: every primitive of the calculus table as an eager function.

The common call (NumPy float32/float64 of one dtype, or with a Python number) runs the printed
function of `codegen`; everything else (promotion, half types, other devices, arrays) goes
through `_slow`, which records the same rule. Values and gradients at edges: the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from chainrule import dtypes
from chainrule.autograd.node import Node, Rule
from chainrule.autograd.state import is_grad_enabled
from chainrule.autograd.value import Value, backend_for, new_value, raw_of, user_place
from chainrule.backends import numpy as numpy_backend
from chainrule.calculus.table import TABLE
from chainrule.dtypes import DType
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import codegen
from chainrule.ops._apply import coerce, common_backend, graph_value, namespace, to_dtype
from chainrule.storage import CLOCK

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Operation = Callable[..., "Tensor"]


class ElementwiseRule(Rule):
    """A rule printed from the table for one primitive, operand kinds and needed gradients."""

    __slots__ = ("_indices", "keeps", "text")

    def __init__(self, name: str, text: codegen.RuleText, run: Any, run_tensor: Any, n: int):
        super().__init__(name, run, run_tensor, broadcasts=n > 1)
        self.text = text
        self._indices = text.keeps
        self.keeps = sum(1 << (n if i < 0 else i) for i in text.keeps)

    def keeps_output(self, node: Node) -> bool:
        """Whether the rule reads the output."""
        return -1 in self._indices

    def keep(self, *operands: Any) -> tuple[Any, ...]:
        """The operands to save, in the rule's order; the output comes last."""
        return tuple([operands[i] for i in self._indices])


@lru_cache(maxsize=4096)
def rule_for(
    name: str,
    kinds: str,
    need: tuple[bool, ...],
    constants: tuple[float | None, ...] = (),
    host: str = "cpu",
    half: bool = False,
) -> ElementwiseRule:
    """The rule of primitive `name`, printed and compiled on first use."""
    constants = constants or (None,) * len(kinds)
    where = "numpy" if host == "cpu" else "torch"
    text = codegen.rule_text(name, kinds, need, constants, half, where)
    twice = codegen.rule_text(name, kinds, need, constants, half, "tensor")

    def compiled(source: str, b: Any, **more: Any) -> Callable[..., Any]:
        label = f"rule of {name}({kinds})"
        scope = {"b": b, "F32": dtypes.float32, "restore": _restore, "raw": raw_of, **more}
        return codegen.make(source, "rule", scope, label)

    run = compiled(text.source, numpy_backend if host == "cpu" else _torch())
    lazy: list[Callable[..., Any]] = []

    def run_tensor(node: Node, g: Any) -> tuple[Any, ...]:
        if not lazy:  # second order is rare: compiled when first wanted
            lazy.append(compiled(twice.source, namespace(), graph=graph_value))
        return lazy[0](node, g)

    return ElementwiseRule(name, text, run, run_tensor, len(kinds))


def _torch() -> Any:
    from chainrule import backends

    return backends.get("torch")


def _restore(x: Any, native: Any) -> Any:
    if isinstance(x, Value):
        return to_dtype(x, native)
    return x.astype(native) if isinstance(x, (ndarray, np.generic)) else x.to(native)


def _slow(name: str, *args: Any) -> Any:
    """Any operands: numbers, arrays, mixed dtypes, half types, any device."""
    primitive = TABLE[name]
    operands, kind = coerce(args, name)
    backend = common_backend(operands, name)
    values = [i for i, a in enumerate(operands) if isinstance(a, Value)]
    typed = [i for i in range(len(operands)) if not (name == "where" and i == 0)]
    dtype = _result_dtype(operands, typed)
    if primitive.result == "float" and dtype.category < 2:
        dtype = dtypes.float32
    if dtype.is_complex:
        raise DTypeError(f"{name} of complex tensors: complex dtypes are storage only")
    if name == "where" and isinstance(operands[0], Value) and operands[0].dtype is not dtypes.bool:
        raise DTypeError(f"where needs a bool condition, not {operands[0].dtype.name}")
    for i in values:
        if i in typed and operands[i].dtype is not dtype:
            operands[i] = to_dtype(operands[i], dtype)
    half = dtype.is_half
    raws = [raw_of(a) if isinstance(a, Value) else a for a in operands]
    shown = raws
    if half:
        shown = [
            backend.cast(r, dtypes.float32) if i in values and i in typed else r
            for i, r in enumerate(raws)
        ]
    elif dtype.category < 2:
        shown = [int(r) if isinstance(r, float) and r == int(r) else r for r in raws]
    out = _compute(backend, name, shown, operands)
    wanted = dtypes.bool if primitive.result == "bool" else dtype
    out = backend.asarray(out)
    if backend.dtype_of(out) is not wanted:
        out = backend.cast(out, wanted)
    t = new_value(kind, out)
    parents = tuple(a.node if isinstance(a, Value) else None for a in operands)
    tracked = primitive.differentiable and dtype.category == 2
    if tracked and is_grad_enabled() and any(p is not None for p in parents):
        kinds = "".join("T" if isinstance(a, Value) else "S" for a in operands)
        constants: list[float | None] = [None] * len(operands)
        if name == "pow" and kinds == "TS":
            constants[1] = float(operands[1])
        need = tuple(p is not None for p in parents)
        rule = rule_for(name, kinds, need, tuple(constants), backend.name, half)
        n = t.node = object.__new__(Node)
        n.rule = rule
        n.saved = rule.keep(*operands, out)
        n.parents = parents
        n.code, n.lasti = user_place(3)
        n.shape = tuple(out.shape)
        n.stamp = CLOCK.now
        n.hooks = n.storage = None
    return t


def _compute(backend: Any, name: str, raws: list[Any], operands: Sequence[Any]) -> Any:
    try:
        if backend is not numpy_backend and not any(isinstance(a, Value) for a in operands):
            raise InputError(f"{name} needs a tensor")
        return getattr(backend, name)(*raws)
    except (ValueError, RuntimeError) as wrong:
        shapes = [tuple(r.shape) for r in raws if hasattr(r, "shape")]
        if len(shapes) > 1 and not _broadcastable(shapes):
            raise ShapeError(
                f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast: compared "
                "from the right, each pair of sizes must be equal or contain a 1"
            ) from None
        raise InputError(f"{name}: {wrong}") from None
    except TypeError as wrong:
        raise DTypeError(f"{name}: {wrong}") from None


def _broadcastable(shapes: Sequence[tuple[int, ...]]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True


def _result_dtype(operands: Sequence[Any], typed: Sequence[int]) -> DType:
    dimensioned: list[DType] = []
    zero_dim: list[DType] = []
    numbers: list[DType] = []
    for i in typed:
        a = operands[i]
        if isinstance(a, Value):
            (dimensioned if len(a._a.shape) else zero_dim).append(
                backend_for(a._a).dtype_of(a._a)
            )
        elif isinstance(a, bool):
            numbers.append(dtypes.bool)
        else:
            numbers.append(dtypes.int64 if isinstance(a, int) else dtypes.float32)
    return dtypes.promote_ranked(dimensioned, zero_dim, numbers)


def _make(name: str) -> Operation:
    """The eager function of a primitive with one or two tensor operands."""
    primitive = TABLE[name]
    fn = getattr(numpy_backend, name)
    public = _named(name)
    unary = primitive.arity == 1
    rules: list[Rule | None] = [None] * 4
    if not primitive.differentiable or primitive.arity > 2 or primitive.result == "bool":
        return _generic(name)

    def make_rule(*nodes: Any) -> Rule:
        mask = tuple(n is not None for n in nodes)
        rule = rule_for(name, "T" * len(nodes), mask)
        rules[sum(1 << i for i, needed in enumerate(mask) if needed)] = rule
        return rule

    def slow(*args: Any) -> Any:
        return _slow(name, *args)

    scope: dict[str, Any] = {
        "fn": fn,
        "ndarray": ndarray,
        "asarray": np.asarray,
        "new": object.__new__,
        "Node": Node,
        "F32": np.dtype(np.float32),
        "F64": np.dtype(np.float64),
        "recording": is_grad_enabled,
        "frame": sys._getframe,  # pyright: ignore[reportPrivateUsage]
        "clock": CLOCK,
        "rules": rules,
        "make_rule": make_rule,
        "slow": slow,
    }
    if unary:
        return codegen.make(codegen.operation_source(public, "unary"), public, scope, name)
    scope["scalar"] = slow if name == "pow" else _scalar_form(name, "scalar", scope)
    text = codegen.operation_source(public, "binary", primitive.defaults)
    return codegen.make(text, public, scope, name)


def _scalar_form(name: str, form: str, scope: dict[str, Any]) -> Callable[..., Any]:
    rules: list[Rule | None] = [None, None]
    kinds = "TS" if form == "scalar" else "ST"

    def make_rule(*nodes: Any) -> Rule:
        rule = rules[1] = rule_for(name, kinds, tuple(n is not None for n in nodes))
        return rule

    public = f"{_named(name)}_{form}"
    own = {**scope, "rules": rules, "make_rule": make_rule}
    return codegen.make(codegen.operation_source(public, form), public, own, f"{name} {form}")


def reflected(name: str) -> Operation:
    """The operator with the tensor on the right: `reflected("sub")(x, 2.0)` is `2.0 - x`."""
    general = _TABLE_OPS[name]
    scope = dict(general.__globals__)  # pyright: ignore[reportAttributeAccessIssue]
    form = None if name == "pow" else _scalar_form(name, "reflected", scope)

    def apply(a: Any, b: Any) -> Any:
        if form is not None and (type(b) is float or type(b) is int):
            return form(a, b)
        return _slow(name, b, a)

    return apply


def _generic(name: str) -> Operation:
    primitive = TABLE[name]
    least = primitive.arity - len(primitive.defaults)

    def apply(*args: Any) -> Any:
        if not least <= len(args) <= primitive.arity:
            raise TypeError(f"{name} takes {least} to {primitive.arity} operands, got {len(args)}")
        return _slow(name, *args, *primitive.defaults[len(args) - least :])

    apply.__name__ = _named(name)
    return apply


def _named(name: str) -> str:
    return name if name.isidentifier() else f"{name}_"


_TABLE_OPS: dict[str, Operation] = {}
for _name, _row in TABLE.items():
    _op = _make(_name)
    _op.__doc__ = (
        f"Elementwise {_row.formula}, for tensors that broadcast."
        + (f" Edges: {_row.edges}." if _row.edges else "")
    )
    _op.__module__ = __name__
    _TABLE_OPS[_name] = _op


def operation(name: str) -> Operation:
    """The eager operation of a primitive of the table."""
    return _TABLE_OPS[name]


def source(name: str, need: tuple[bool, ...] | None = None) -> str:
    """The printed backward rule of a primitive, as it runs."""
    arity = TABLE[name].arity
    return rule_for(name, "T" * arity, need or (True,) * arity).text.source
