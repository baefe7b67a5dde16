"""The tape behind a tensor: its nodes in the order of backward, and the memory that they keep.

Everything is read off the nodes themselves: rules, saved values, instruction offsets, array bases.
Looking changes nothing and computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy import ndarray

from chainrule.autograd.graph import Held, PackedRule
from chainrule.autograd.node import FREED, Leaf, Node
from chainrule.autograd.value import Value, backend_for
from chainrule.calculus import formula as text_of
from chainrule.errors import InputError
from chainrule.ops._apply import ArrayRule
from chainrule.ops.rules import ElementwiseRule
from chainrule.storage import Place


@dataclass
class Saved:
    """One saved value: what it is, its shape and dtype, and the block of memory it keeps alive.

    `nbytes` is that of the whole block; `alias` says who has the block already: a leaf, or the
    number of the node that is the first to save it in forward; None for the first itself.
    """

    what: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    block: int
    alias: str | None = None


@dataclass
class Entry:
    """One node or leaf of the tape; `number` is its turn in backward."""

    number: int
    node: Node | Leaf
    name: str
    shape: tuple[int, ...]
    formula: str
    to: list[str]
    saved: list[Saved] = field(default_factory=list[Saved])
    freed: bool = False

    @property
    def place(self) -> Place | None:
        """Where the user called the operation; None for a leaf."""
        return self.node.place if isinstance(self.node, Node) else None

    @property
    def kept(self) -> int:
        """The bytes that this node alone, or as the first, keeps alive."""
        return sum(s.nbytes for s in self.saved if s.alias is None)


class Tape:
    """The tape behind a tensor: `str()` is text, `.svg()` an SVG, notebooks show the SVG.

    `entries` are in the order of backward; `kept` the bytes that the tape keeps alive, leaves'
    own memory not counted; `leaves` the bytes of it that leaves have anyway; `lines` how much each
    line of the user's keeps, most first.
    """

    def __init__(self, entries: list[Entry], width: int) -> None:
        self.entries = entries
        self.width = width
        self.kept = sum(e.kept for e in entries)
        of_leaves = {
            s.block: s.nbytes for e in entries for s in e.saved if s.alias and s.alias[:4] == "leaf"
        }
        self.leaves = sum(of_leaves.values())
        lines: dict[Place, int] = {}
        text: dict[str, Place] = {}
        for e in entries:
            if e.place is not None and e.kept:
                place = text.setdefault(str(e.place), e.place)
                lines[place] = lines.get(place, 0) + e.kept
        self.lines = sorted(lines.items(), key=lambda item: -item[1])

    def __str__(self) -> str:
        from chainrule.show._tape_text import tape

        return tape(self)

    __repr__ = __str__

    def svg(self) -> str:
        """A self-contained SVG: a row a node, with a bar as long as what it keeps."""
        from chainrule.show._tape_svg import tape

        return tape(self)

    def _repr_svg_(self) -> str:
        return self.svg()


def tape(t: Any, *, width: int = 96) -> Tape:
    """The tape behind a tensor that requires grad: what backward will do, and what it keeps.

    Raises `InputError` for a tensor without history and for a width below 60.
    """
    if not isinstance(t, Value) or t.node is None:
        raise InputError(
            "tape shows the history of a tensor that requires grad: this has none (was it detached, "
            "or computed under no_grad?)"
        )
    if width < 60:
        raise InputError(f"width {width} is too narrow for the listing: use at least 60")
    nodes = backward_order(t.node)
    number = {n: i for i, n in enumerate(nodes)}
    entries = [_entry(i, n, number) for i, n in enumerate(nodes)]
    _mark_aliases(entries)
    return Tape(entries, width)


def backward_order(root: Node | Leaf) -> list[Node | Leaf]:
    """Nodes and leaves in the order in which `engine.Walk` comes to them."""
    counts: dict[Node | Leaf, int] = {root: 0}
    stack: list[Node | Leaf] = [root]
    while stack:
        for p in stack.pop().parents:
            if p is not None:
                if p not in counts:
                    counts[p] = 0
                    stack.append(p)
                counts[p] += 1
    order: list[Node | Leaf] = []
    ready: list[Node | Leaf] = [root]
    node: Node | Leaf | None = None
    while node is not None or ready:
        node = ready.pop() if node is None else node
        order.append(node)
        following: Node | Leaf | None = None
        for p in node.parents:
            if p is None:
                continue
            counts[p] -= 1
            if not counts[p]:
                if following is not None:
                    ready.append(following)
                following = p
        node = following
    return order


def _entry(number: int, node: Node | Leaf, numbers: dict[Node | Leaf, int]) -> Entry:
    if isinstance(node, Leaf):
        return Entry(number, node, "leaf", node.shape, "adds to .grad", [])
    # Elementwise nodes have no attrs; a Function's may have several outputs.
    shapes = getattr(getattr(node, "attrs", None), "_shapes", None)
    shape = node.shape if shapes is None or len(shapes) == 1 else tuple(shapes)
    to = [f"{numbers[p]}" if p is not None else "-" for p in node.parents]
    entry = Entry(number, node, node.name(), shape, formula_of(node), to)
    if node.saved is FREED:
        entry.freed = True
        return entry
    names = _names(node)
    for i, v in enumerate(node.saved):
        what = names[i] if i < len(names) else "intermediate"
        if isinstance(v, Held):
            entry.saved.append(Saved(f"{what} (packed)", v.shape, v.dtype.name, 0, 0, "packed"))
        elif isinstance(v, Value) or (hasattr(v, "shape") and hasattr(v, "dtype")):
            raw = v._a if isinstance(v, Value) else v
            block, nbytes = block_of(raw)
            dtype = backend_for(raw).dtype_of(raw).name
            entry.saved.append(Saved(what, tuple(raw.shape), dtype, nbytes, block))
    return entry


def formula_of(node: Node) -> str:
    """What the rule does with the incoming gradient `g`: its own formula, or where it stands."""
    rule = inner(node)
    if isinstance(rule, ElementwiseRule):
        need = [i for i, p in enumerate(node.parents) if p is not None]
        found = zip(need, rule.text.results, strict=True)
        return ", ".join(f"d{operand(i)} = {text_of(e)}" for i, e in found)
    if isinstance(rule, ArrayRule):
        code = rule.vjp.__code__
        file = code.co_filename.replace("\\", "/").rpartition("/chainrule/")[2]
        name = code.co_name
        return f"see {file}" if name == "<lambda>" else f"see {name} in {file}"
    return ""


def operand(i: int) -> str:
    """The name that printed rules give operand `i`."""
    return f"a{i}"


def inner(node: Node) -> Any:
    """The rule of a node, whether or not hooks have packed what it saved."""
    rule = node.rule
    return rule.inner if isinstance(rule, PackedRule) else rule


def _names(node: Node) -> list[str]:
    """What each saved value is to the operation."""
    rule = inner(node)
    if isinstance(rule, ElementwiseRule):
        return ["output y" if i < 0 else f"input {operand(i)}" for i in rule.text.keeps]
    if isinstance(rule, ArrayRule):
        indices = rule.saved_indices(tuple(p is not None for p in node.parents))
        return ["output" if i == "y" else f"input {i}" for i in indices]
    roles = getattr(getattr(node, "attrs", None), "_roles", ())
    return ["None" if r is None else f"{r.role} '{r.name}'" for r in roles]


def block_of(raw: Any) -> tuple[int, int]:
    """The block of memory that an array keeps alive: an identity and its bytes."""
    if isinstance(raw, ndarray):
        owner: Any = raw
        while isinstance(owner.base, ndarray):
            owner = owner.base
        return id(owner), owner.nbytes
    memory = getattr(raw, "tensor", raw).untyped_storage()
    return memory.data_ptr(), memory.nbytes()


def _mark_aliases(entries: list[Entry]) -> None:
    """Say of each saved value who has its memory already; forward order decides who was first."""
    owner: dict[int, str] = {}
    for e in entries:
        if isinstance(e.node, Leaf) and (t := e.node.variable) is not None:
            owner[block_of(t._a)[0]] = f"leaf {e.number}"
    for e in reversed(entries):
        for s in e.saved:
            if s.alias is not None:
                continue
            s.alias = owner.get(s.block)
            if s.alias is None:
                owner[s.block] = f"{e.number}"
