"""Memory for time: a part of a model whose saved tensors are dropped and computed again in backward.

The part is recorded as always, so gradients reach whatever it uses; each node's saved values are
replaced as it is recorded (`autograd.graph`). The first one that a derivative asks for runs the
function again and keeps what that run saves, value by value, until it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from chainrule import _tree, random
from chainrule.autograd import graph
from chainrule.autograd.node import Leaf, Node, check_fresh, stale
from chainrule.autograd.state import enable_grad, is_grad_enabled
from chainrule.autograd.value import Value, backend_for, detached, new_value, user_place
from chainrule.dtypes import DType
from chainrule.errors import CheckpointError, InputError
from chainrule.storage import CLOCK, Place

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    preserve_rng_state: bool = True,
    determinism_check: str = "default",
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, keeping only the arguments and running it again in backward.

    The default generator is set back for the second run (`preserve_rng_state`). A second run that
    saves other tensors than the first raises `CheckpointError` with the tensor's number, shapes and
    lines; `determinism_check="none"` compares their number alone. Nests; `create_graph` and forward
    mode work. Chen et al. 2016, arXiv:1604.06174.
    """
    if use_reentrant:
        raise InputError("checkpoint offers use_reentrant=False alone: it does all that True does")
    if determinism_check not in ("default", "none"):
        raise InputError(f"determinism_check is 'default' or 'none', not {determinism_check!r}")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    frame = _Frame(function, (args, kwargs), preserve_rng_state, determinism_check == "default")
    with _First(frame):
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int, input: Any, **options: Any
) -> Any:
    """The functions one after the other, in `segments` checkpointed pieces; the last is plain."""
    steps = list(functions)
    if not 1 <= segments <= len(steps):
        raise InputError(f"segments must be 1 to {len(steps)}, the functions there are: {segments}")
    size = len(steps) // segments

    def piece(part: Sequence[Callable[..., Any]]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for step in part:
                x = step(x)
            return x

        return run

    for i in range(segments - 1):
        input = checkpoint(piece(steps[i * size : (i + 1) * size]), input, **options)
    return piece(steps[(segments - 1) * size :])(input)


class _Saved(NamedTuple):
    """What one saved value was in the first run."""

    name: str
    place: Place
    shape: tuple[int, ...]
    dtype: DType

    def __str__(self) -> str:
        return f"'{self.name}' at {self.place} saved shape {self.shape} {self.dtype.name}"


def _described(v: Any, name: str, place: Place) -> _Saved:
    raw = v._a if isinstance(v, Value) else v
    return _Saved(name, place, tuple(raw.shape), backend_for(raw).dtype_of(raw))


class _Kept:
    """An argument kept as it is."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self) -> Any:
        return self._value


class _Again(graph.Held):
    """A saved value that is computed again when it is needed."""

    __slots__ = ("frame", "index")

    def __init__(self, frame: _Frame, index: int) -> None:
        self.frame = frame
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.frame.saved[self.index].shape

    @property
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.frame.saved[self.index].dtype

    def value(self) -> Any:
        return self.frame.value(self.index)


class _Frame:
    """One checkpointed call: how to run it again, and what its first run saved."""

    def __init__(
        self, function: Callable[..., Any], call: Any, keep_random: bool, compare: bool
    ) -> None:
        self.function = function
        self.compare = compare
        self.place = user_place(3)
        self.stamp = CLOCK.now
        self.state = _random_state() if keep_random else None
        outer = graph.current()
        self.required: list[bool] = []

        def keep(x: Any) -> Any:
            if not isinstance(x, Value):
                return _Kept(x)
            self.required.append(x.node is not None)
            # In a checkpoint, or among hooks, the arguments are theirs to keep.
            return _Kept(x) if outer is None else outer.pack(x, self.place)

        self.call = _tree.rebuilt(call, keep)
        self.saved: list[_Saved] = []
        self.found: dict[int, Any] = {}

    def value(self, index: int) -> Any:
        """Saved value `index`; the function runs again if it is not at hand."""
        if index not in self.found:
            self.found = {}
            self._run_again()
        return self.found.pop(index)

    def _run_again(self) -> None:
        args, kwargs = self._arguments()
        now = _random_state()
        again = _Second(self)
        if self.state is not None:
            _set_random_state(self.state)
        try:
            with enable_grad(), again:
                self.function(*args, **kwargs)
        finally:
            if self.state is not None:
                _set_random_state(now)
        if again.count != len(self.saved):
            raise CheckpointError(
                f"checkpoint at {self.place}: the first run saved {len(self.saved)} tensors, the "
                f"second {again.count}{self._first_missing(again.count)}. {_ADVICE}"
            )
        for node in again.nodes:
            if node.stamp != CLOCK.now:
                check_fresh(node)
        self.found = again.found

    def _first_missing(self, count: int) -> str:
        return (
            f": missing from tensor {count} on: {self.saved[count]}"
            if count < len(self.saved)
            else ""
        )

    def _arguments(self) -> Any:
        """The call with tensors of their own, that lead to no earlier history."""
        required = iter(self.required)
        number = -1

        def own(kept: Any) -> Any:
            nonlocal number
            x = kept.value()
            if not isinstance(x, Value):
                return x
            number += 1
            writes = x._s.writes_since(self.stamp) if x._s is not None else []
            if x._s is not None and writes:
                raise stale("checkpoint", f"tensor argument {number} of", self.place, x._s, writes)
            fresh = detached(x)
            if next(required):
                fresh.node = Leaf(fresh)
            return fresh

        return _tree.rebuilt(self.call, own)


class _First(graph.Scope):
    """The first run: values are noted and dropped."""

    def __init__(self, frame: _Frame) -> None:
        super().__init__()
        self.frame = frame

    def keep(self, node: Node) -> None:
        graph.replace(node, lambda v: self._drop(v, node.rule.name, node.place))

    def pack(self, value: Any, place: Place) -> Any:
        return self._drop(value, "nested checkpoint", place)

    def _drop(self, v: Any, name: str, place: Place) -> _Again:
        self.frame.saved.append(_described(v, name, place))
        return _Again(self.frame, len(self.frame.saved) - 1)


class _Second(graph.Scope):
    """The run in backward: values are compared with the first run's and kept."""

    def __init__(self, frame: _Frame) -> None:
        super().__init__()
        self.frame = frame
        self.found: dict[int, Any] = {}
        self.nodes: list[Node] = []
        self.count = 0

    def keep(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.saved:
            if graph.savable(v):
                self._take(v, node.rule.name, node.place)

    def pack(self, value: Any, place: Place) -> Any:
        self._take(value, "nested checkpoint", place)
        return _Kept(value)

    def _take(self, v: Any, name: str, place: Place) -> None:
        k = self.count
        self.count += 1
        frame = self.frame
        now = _described(v, name, place)
        first = frame.saved[k] if k < len(frame.saved) else None
        if first is None or (
            frame.compare
            and (first.name, first.shape, first.dtype) != (now.name, now.shape, now.dtype)
        ):
            before = "nothing was saved" if first is None else str(first)
            raise CheckpointError(
                f"checkpoint at {frame.place}: saved tensor {k} is another in the second run. "
                f"First: {before}; now: {now}. {_ADVICE}"
            )
        if isinstance(v, Value):
            if isinstance(v.node, Leaf):
                writes = v._s.writes_since(frame.stamp) if v._s is not None else []
                if v._s is not None and writes:
                    raise stale(name, "a leaf saved by", place, v._s, writes)
            v = new_value(type(v), v._a)  # without the second run's history
        self.found[k] = v


_ADVICE = (
    "The function must do the same when it runs again in backward: look for a condition, a counter "
    "or a global that changed, or random numbers that preserve_rng_state=False does not set back"
)


def _random_state() -> Any:
    return random.default_generator.numpy.bit_generator.state


def _set_random_state(state: Any) -> None:
    random.default_generator.numpy.bit_generator.state = state
