"""`einsum`: a formula over subscripts, read and carried out with permute, reshape and matmul.

Operands are contracted from left to right; a subscript is summed as soon as neither the result
nor a later operand has it. Relies on `views` and `linalg`, which bring the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from chainrule.autograd.value import Value
from chainrule.errors import DTypeError, InputError, ShapeError
from chainrule.ops import named, views
from chainrule.ops._apply import common_backend
from chainrule.ops.linalg import matmul
from chainrule.ops.reductions import sum

if TYPE_CHECKING:
    from chainrule._tensor import Tensor

Label = str | int  # a subscript, or a number for a dimension that "..." stands for


def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products over the subscripts that the result lacks: `einsum("ij,jk->ik", a, b)`.

    Without "->" the result has the subscripts that occur once, in alphabetical order. A subscript
    twice in one operand takes its diagonal, "..." stands for dimensions that broadcast, and sizes
    of 1 broadcast. Also takes lists of numbers: `einsum(a, [0, 1], b, [1, 2], [0, 2])`.
    """
    if isinstance(equation, Value):
        equation, operands = _spelled((equation, *operands))
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands or not all(isinstance(t, Value) for t in operands):
        raise DTypeError("einsum takes an equation and at least one tensor")
    common_backend(operands, "einsum")
    kinds = {t.dtype.name for t in operands}
    if len(kinds) > 1:
        raise DTypeError(f"einsum of {' and '.join(sorted(kinds))}: convert with .to(dtype)")
    inputs, result = _parsed(equation, [len(t._a.shape) for t in operands])
    _check_sizes(equation, inputs, [tuple(t._a.shape) for t in operands])
    held, labels = _diagonal(operands[0], inputs[0])
    for i, operand in enumerate(operands[1:], 1):
        other, found = _diagonal(operand, inputs[i])
        later = {label for names in inputs[i + 1 :] for label in names} | set(result)
        held, labels = _pair(held, labels, other, found, later)
    return _arranged(held, labels, result)


# Reading.


def _spelled(given: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The equation of operands and lists of numbers in turn."""

    def text(numbers: Sequence[Any]) -> str:
        letters: list[str] = []
        for n in numbers:
            if n is Ellipsis:
                letters.append("...")
            elif isinstance(n, int) and 0 <= n < 52:
                letters.append(chr(ord("A") + n) if n < 26 else chr(ord("a") + n - 26))
            else:
                raise InputError(f"einsum: a subscript is a number from 0 to 51 or ..., not {n!r}")
        return "".join(letters)

    pairs = len(given) // 2
    terms = ",".join(text(given[2 * i + 1]) for i in range(pairs))
    if len(given) % 2:
        terms += "->" + text(given[-1])
    return terms, tuple(given[2 * i] for i in range(pairs))


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[list[Label]], list[Label]]:
    """The labels of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise InputError(f"einsum {equation!r} names {len(terms)} operands, got {len(ranks)}")
    inputs: list[list[Label]] = []
    for i, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        before, dots, after = term.partition("...")
        _check_letters(equation, before + after)
        hidden = rank - len(before) - len(after)
        if hidden < 0 or (hidden and not dots):
            raise ShapeError(
                f"einsum {equation!r}: operand {i} has {rank} dimensions, its subscripts {term!r} "
                f"name {len(before) + len(after)}"
            )
        # Dimensions under the dots are numbered from the right, where they broadcast from.
        inputs.append([*before, *range(-hidden, 0), *after])
    unseen: list[Label] = [*range(min([_hidden(names) for names in inputs]), 0)]
    if not arrow:
        flat = [n for names in inputs for n in names]
        once = sorted([n for n in set(flat) if isinstance(n, str) and flat.count(n) == 1])
        return inputs, [*unseen, *once]
    before, dots, after = right.partition("...")
    _check_letters(equation, before + after)
    result: list[Label] = [*before, *(unseen if dots else []), *after]
    for n in result:
        if result.count(n) > 1:
            raise InputError(f"einsum {equation!r}: the result names {n!r} twice")
        if not any(n in names for names in inputs):
            raise InputError(f"einsum {equation!r}: no operand has the result's subscript {n!r}")
    return inputs, result


def _hidden(names: Sequence[Label]) -> int:
    """Minus the number of dimensions under the dots of one operand."""
    return min([n for n in names if isinstance(n, int)], default=0)


def _check_letters(equation: str, letters: str) -> None:
    for c in letters:
        if not (c.isascii() and c.isalpha()):
            raise InputError(f"einsum {equation!r}: {c!r} is no subscript: use letters")


def _check_sizes(
    equation: str, inputs: Sequence[Sequence[Label]], shapes: Sequence[tuple[int, ...]]
) -> None:
    """Raise unless each label has one size; 1 gives way to any other."""
    sizes: dict[Label, int] = {}
    for i, (names, shape) in enumerate(zip(inputs, shapes, strict=True)):
        own: dict[Label, int] = {}
        for name, n in zip(names, shape, strict=True):
            if own.setdefault(name, n) != n:
                raise ShapeError(
                    f"einsum {equation!r}: operand {i} of shape {shape} has sizes {own[name]} and "
                    f"{n} for the one subscript {name!r}"
                )
            known = sizes.get(name, 1)
            if known != n and 1 not in (known, n):
                raise ShapeError(
                    f"einsum {equation!r}: subscript {name!r} has size {n} in operand {i}, {known} "
                    "before"
                )
            sizes[name] = n if known == 1 else known


# Carrying out.


def _diagonal(t: Any, names: Sequence[Label]) -> tuple[Any, list[Label]]:
    """The operand with each label once: repeated ones become diagonals."""
    labels = list(names)
    for name in list(dict.fromkeys(labels)):
        while labels.count(name) > 1:
            i = labels.index(name)
            j = labels.index(name, i + 1)
            t = views.diagonal(t, 0, i, j)
            del labels[j], labels[i]
            labels.append(name)
    return t, labels


def _summed(t: Any, labels: list[Label], dropped: Sequence[Label]) -> tuple[Any, list[Label]]:
    """`t` summed over some of its labels."""
    dims = [i for i, n in enumerate(labels) if n in dropped]
    if not dims:
        return t, labels
    return sum(t, dims, dtype=t.dtype), [n for n in labels if n not in dropped]


def _pair(
    a: Any,
    la: list[Label],
    b: Any,
    lb: list[Label],
    kept: set[Label],
) -> tuple[Any, list[Label]]:
    """The product of two operands, summed over what only they have."""
    a, la = _summed(a, la, [n for n in la if n not in lb and n not in kept])
    b, lb = _summed(b, lb, [n for n in lb if n not in la and n not in kept])
    # A label of size 1 on one side broadcasts: there it is only a label of the other.
    for n in [n for n in la if n in lb]:
        wide_a, wide_b = a._a.shape[la.index(n)] != 1, b._a.shape[lb.index(n)] != 1
        if wide_a != wide_b:
            if wide_a:
                b, lb = views.squeeze(b, lb.index(n)), [m for m in lb if m != n]
            else:
                a, la = views.squeeze(a, la.index(n)), [m for m in la if m != n]
    a, la = _summed(a, la, [n for n in la if n not in lb and n not in kept])
    b, lb = _summed(b, lb, [n for n in lb if n not in la and n not in kept])
    both = [n for n in la if n in lb]
    batch, inner = [n for n in both if n in kept], [n for n in both if n not in kept]
    free_a, free_b = [n for n in la if n not in both], [n for n in lb if n not in both]
    rows = _merged(a, la, (batch, free_a, inner))
    columns = _merged(b, lb, (batch, inner, free_b))
    out = matmul(rows, columns) if inner else named.mul(rows, columns)
    shape = [_size(a, la, n) for n in batch + free_a] + [_size(b, lb, n) for n in free_b]
    return views.reshape(out, shape), batch + free_a + free_b


def _size(t: Any, labels: Sequence[Label], name: Label) -> int:
    return int(t._a.shape[labels.index(name)])


def _merged(t: Any, labels: list[Label], groups: Sequence[Sequence[Label]]) -> Any:
    """`t` with the batch labels apart and each of the other two groups merged into one dimension."""
    t = views.permute(t, [labels.index(n) for group in groups for n in group])
    shape = list(t._a.shape)
    first, second = len(groups[0]), len(groups[0]) + len(groups[1])
    merged = [*shape[:first], _count(shape[first:second]), _count(shape[second:])]
    return views.reshape(t, merged)


def _count(sizes: Sequence[int]) -> int:
    total = 1
    for n in sizes:
        total *= n
    return total


def _arranged(t: Any, labels: list[Label], result: list[Label]) -> Any:
    """`t` summed over what the result lacks, in the result's order."""
    t, labels = _summed(t, labels, [n for n in labels if n not in result])
    return views.permute(t, [labels.index(n) for n in result])
