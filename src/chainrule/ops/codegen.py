"""Backward rules of the elementwise operations, printed as Python from the calculus table.

A rule is printed for one primitive, its operand kinds and the gradients that are wanted, and
compiled on first use; the same expressions are printed for raw arrays and, where a graph is
wanted, for tensors. The text is kept: `rules.source(name)` shows exactly what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chainrule import dtypes
from chainrule.calculus import simplify
from chainrule.calculus.derive import substitute
from chainrule.calculus.expr import Expr, const, topo, var
from chainrule.calculus.table import TABLE

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}

# Held, so that they are always made in this order: commutative operations put the older one first,
# and a rule's text must not depend on what was printed before.
_OPERANDS = [var(f"a{i}") for i in range(max(p.arity for p in TABLE.values()))]
_G = var("g")


class RuleText(NamedTuple):
    """A printed backward rule: its source, and which of the operands and the output it reads."""

    source: str
    keeps: tuple[int, ...]  # operand indices; -1 is the output
    steps: int  # statements of arithmetic
    results: tuple[Expr, ...]  # what was printed: the wanted gradients, in `g`, `a0`, … and `y`


def rule_text(
    name: str,
    kinds: str,
    need: Sequence[bool],
    constants: Sequence[float | None],
    half: bool,
    host: str,
) -> RuleText:
    """Print the rule of primitive `name`.

    `kinds[i]` is "T" for a tensor operand and "S" for a Python number; a number that is given in
    `constants` is printed into the rule (a fixed exponent), another is read at run time. `host`
    says what the rule runs on: "numpy", "torch" or "tensor".
    """
    y, partials = _partials(name, need, constants)
    g = _G
    results = [
        simplify.mul(g, p) if needed else None for p, needed in zip(partials, need, strict=True)
    ]
    printer = _Printer(y, {f"a{i}" for i, k in enumerate(kinds) if k == "S"})
    names = [None if r is None else printer.put_array(r) for r in results]
    used = printer.used
    keeps = [i for i in range(len(kinds)) if f"a{i}" in used] + ([-1] if "y" in used else [])
    held = ["y" if i < 0 else f"a{i}" for i in keeps]
    lines = ["def rule(node, g):"]
    if held:
        lines.append(f"    {', '.join(held)}, = node.saved")
    tensors = [h for h in held if h == "y" or kinds[int(h[1:])] == "T"]
    if host == "tensor":
        lines += [f"    {h} = graph({h}, node, {-1 if h == 'y' else h[1:]})" for h in tensors]
    else:
        plain = "{0}._a" if host == "numpy" else "raw({0})"
        lines += [f"    {h} = {plain.format(h)}" for h in tensors if h != "y"]
    if half:
        lines.append("    kind = g.dtype")
        lines += [f"    {h} = b.cast({h}, F32)" for h in _numbers(name, ["g", *tensors])]
    lines += [f"    {line}" for line in printer.lines]
    shown = [n if n is None or not half else f"restore({n}, kind)" for n in names]
    lines.append(f"    return ({', '.join(str(n) for n in shown)},)")
    wanted = [r for r in results if r is not None]
    plain_output = substitute(wanted, {y.id: var("y")})
    return RuleText("\n".join(lines) + "\n", tuple(keeps), len(printer.lines), tuple(plain_output))


def _partials(
    name: str, need: Sequence[bool], constants: Sequence[float | None]
) -> tuple[Expr, tuple[Expr, ...]]:
    """The output and its derivative by each operand, as both modes print them."""
    operands = [const(c) if c is not None else _OPERANDS[i] for i, c in enumerate(constants)]
    primitive = TABLE[name]
    y = primitive(*operands)
    # A commutative node orders its arguments as they were made: back to the operands' order.
    by_argument = {a.id: p for a, p in zip(y.args, primitive.partials(y), strict=True)}
    partials = tuple([by_argument[a.id] for a in operands])
    if primitive.from_output is not None and not any(need[1:]):
        # The derivative in the output alone: cheaper, and the input need not be kept.
        partials = (simplify.tidy(primitive.from_output(y, *operands[1:]), {y.id}), *partials[1:])
    return y, partials


def tangent_text(
    name: str,
    kinds: str,
    need: Sequence[bool],
    constants: Sequence[float | None],
    half: bool,
    have: Sequence[bool],
) -> str:
    """Print forward mode of a primitive, on tensors: from the tangents of `have` to the output's."""
    y, partials = _partials(name, need, constants)
    kept = rule_text(name, kinds, need, constants, half, "tensor").keeps
    total: Expr = simplify.ZERO
    for i, (p, given) in enumerate(zip(partials, have, strict=True)):
        if given:
            total = simplify.add(total, simplify.mul(var(f"t{i}"), p))
    lines = [f"def rule(node, {', '.join(f't{i}' for i in range(len(kinds)))}):"]
    if total is simplify.ZERO:
        return "\n".join([*lines, "    return None"]) + "\n"
    printer = _Printer(y, {f"a{i}" for i, k in enumerate(kinds) if k == "S"}, prefix="s")
    result = printer.put(total)
    held = ["y" if i < 0 else f"a{i}" for i in kept]
    tangents = [f"t{i}" for i, given in enumerate(have) if given]
    tensors = [h for h in held if h in printer.used and (h == "y" or kinds[int(h[1:])] == "T")]
    if held:
        lines.append(f"    {', '.join(held)}, = node.saved")
    lines += [f"    {h} = graph({h}, node, {-1 if h == 'y' else h[1:]})" for h in tensors]
    lines.append(f"    kind = {tangents[0]}.dtype")
    if half:
        lines += [f"    {h} = b.cast({h}, F32)" for h in _numbers(name, [*tangents, *tensors])]
    lines.append(f"    g = {tangents[0]}")  # whose dtype and device constants take
    lines += [f"    {line}" for line in printer.lines]
    lines.append(f"    return restore({result}, kind)" if half else f"    return {result}")
    return "\n".join(lines) + "\n"


def _numbers(name: str, held: Sequence[str]) -> list[str]:
    """Those of `held` that are numbers: the condition of `where` stays a truth value."""
    return [h for h in held if not (name == "where" and h == "a0")]


class _Printer:
    """Turns expressions into statements, each shared node once; `y` stands for the output."""

    def __init__(self, output: Expr, numbers: set[str], prefix: str = "t") -> None:
        self.prefix = prefix
        self.output = output
        self.numbers = numbers
        self.lines: list[str] = []
        self.names: dict[int, str] = {output.id: "y"}
        self.plain: dict[int, bool] = {output.id: False}  # a Python number, not an array
        self.used: set[str] = set()

    def put(self, e: Expr) -> str:
        for node in self._order(e):
            self.names[node.id] = self._one(node)
        name = self.names[e.id]
        if name == "y":
            self.used.add("y")
        return name

    def put_array(self, e: Expr) -> str:
        """As `put`, where an array is needed: a number (the 0 of a step) fills one."""
        name = self.put(e)
        return f"b.full(tuple(g.shape), {name}, g)" if self.plain[e.id] else name

    def _order(self, e: Expr) -> list[Expr]:
        found: dict[int, Expr] = {}
        stack = [e]
        while stack:
            node = stack.pop()
            if node.id in found or node.id in self.names:
                continue
            found[node.id] = node
            stack.extend(node.args)
        return [found[i] for i in sorted(found)]

    def _one(self, e: Expr) -> str:
        if e.op == "const":
            self.plain[e.id] = True
            value = repr(e.attr)
            return f"float('{value}')" if value.strip("-") in ("inf", "nan") else value
        if e.op == "var":
            name = str(e.attr)
            self.plain[e.id] = name in self.numbers
            self.used.add(name)
            return name
        args = [self.names[a.id] for a in e.args]
        if any(a is self.output for a in e.args):
            self.used.add("y")
        numbers = [self.plain[a.id] for a in e.args]
        self.plain[e.id] = all(numbers)
        text = self._call(e, args, numbers)
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _call(self, e: Expr, args: list[str], numbers: list[bool]) -> str:
        if e.op in _OPERATORS:
            return f"{args[0]} {_OPERATORS[e.op]} {args[1]}"
        if e.op == "neg":
            return f"-{args[0]}"
        if e.op == "where":
            if numbers[0]:
                return f"{args[1]} if {args[0]} else {args[2]}"
            if numbers[1] and numbers[2]:  # two numbers would become float64
                args[1] = f"b.full((), {args[1]}, g)"
        if all(numbers):  # keep numbers weak
            return f"float(scalar.{e.op}({', '.join(args)}))"
        return f"b.{e.op}({', '.join(args)})"


def used_primitives(name: str) -> set[str]:
    """Which primitives the derivatives of `name` are made of."""
    primitive = TABLE[name]
    y = primitive(*[var(f"a{i}") for i in range(primitive.arity)])
    return {e.op for e in topo(primitive.partials(y))} - {"const", "var", name}


def make(source: str, name: str, namespace: dict[str, Any], label: str) -> Callable[..., Any]:
    """Execute one printed function and return it, with its source findable in tracebacks."""
    import linecache

    file = f"<chainrule {label}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = dict(namespace)
    exec(compile(source, file, "exec"), scope)
    made: Callable[..., Any] = scope[name]
    return made


F32 = dtypes.float32
