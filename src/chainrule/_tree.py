"""Tuples, lists and dicts of tensors taken apart and put together again, for `func` and `utils`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """What stands in a nest of tuples, lists and dicts, from left to right."""
    found: list[Any] = []
    rebuilt(tree, lambda x: found.append(x))
    return found


def rebuilt(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The same nest with `change` of each leaf in its place."""
    if isinstance(tree, dict):
        pairs: dict[Any, Any] = tree  # pyright: ignore[reportUnknownVariableType]
        return type(pairs)((k, rebuilt(v, change)) for k, v in pairs.items())
    if isinstance(tree, (tuple, list)):
        parts = [rebuilt(v, change) for v in tree]  # pyright: ignore[reportUnknownVariableType]
        named = hasattr(tree, "_fields")  # a named tuple takes its fields one by one
        return type(tree)(*parts) if named else type(tree)(parts)  # pyright: ignore
    return change(tree)


def filled(tree: Any, values: list[Any]) -> Any:
    """The nest with `values` for its leaves, in the order of `leaves`."""
    rest = iter(values)
    return rebuilt(tree, lambda _: next(rest))
