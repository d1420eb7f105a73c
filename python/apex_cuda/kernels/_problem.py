"""What operations compute: shapes, checked, and the numbers by which the C interface takes them."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple, Optional

FORMS = ("flash", "hopper", "decode")
"""Forms of attention, whose numbers are their places here plus one."""
LAYOUTS = ("bhsd", "bshd")
"""Orders of dimensions, whose numbers are their places here: batch, heads, rows (sequence), dim."""

_DIMS = (64, 128, 256)

Window = tuple[Optional[int], Optional[int]]


class Options(NamedTuple):
    """How attention is computed, as the C interface takes it."""

    layout: int
    mask: int
    left: int
    right: int
    form: int
    scale: float


def options(
    dim: int,
    causal: bool,
    window: Optional[Window],
    scale: Optional[float],
    layout: str,
    form: Optional[str],
) -> Options:
    """Options of attention from what a caller says.

    Raises:
        ValueError: there is no such option.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}, and must be one of {', '.join(LAYOUTS)}")
    if form is not None and form not in FORMS:
        raise ValueError(f"form is {form!r}, and must be one of {', '.join(FORMS)}, or None")
    if causal and window is not None:
        raise ValueError("a causal mask is the window (None, 0): pass either")
    left, right = (-1 if side is None else side for side in window or (None, None))
    if window is not None and any(side is not None and side < 0 for side in window):
        raise ValueError(f"window is {window}, and its sides must not be negative")
    mask = 2 if window is not None else int(causal)
    number = 0 if form is None else FORMS.index(form) + 1
    scale = 1 / math.sqrt(dim) if scale is None else scale
    return Options(LAYOUTS.index(layout), mask, left, right, number, scale)


def attention_sizes(
    q: Sequence[int], k: Sequence[int], v: Sequence[int], layout: int
) -> tuple[int, int, int, int, int, int]:
    """Batch, heads, heads of keys, queries, keys and dimension of a head.

    Raises:
        ValueError: shapes do not fit.
    """
    for name, shape in (("q", q), ("k", k), ("v", v)):
        if len(shape) != 4:
            raise ValueError(
                f"{name} has shape {tuple(shape)}, and needs the four dimensions {LAYOUTS[layout]}"
            )
    if tuple(k) != tuple(v):
        raise ValueError(f"k and v differ in shape: {tuple(k)} and {tuple(v)}")
    head, row = (1, 2) if layout == 0 else (2, 1)
    if q[0] != k[0] or q[3] != k[3]:
        raise ValueError(
            f"q and k differ in batch or head dimension: {tuple(q)} and {tuple(k)}, as "
            f"{LAYOUTS[layout]}"
        )
    if q[3] not in _DIMS:
        raise ValueError(f"the head dimension is {q[3]}; there are kernels for 64, 128 and 256")
    if q[head] != 0 and (k[head] == 0 or q[head] % k[head] != 0):
        raise ValueError(f"{q[head]} heads of queries cannot share {k[head]} heads of keys evenly")
    return q[0], q[head], k[head], q[row], k[row], q[3]


@functools.lru_cache(maxsize=4096)
def attention(
    q: tuple[int, ...],
    k: tuple[int, ...],
    v: tuple[int, ...],
    causal: bool,
    window: Optional[Window],
    scale: Optional[float],
    layout: str,
    form: Optional[str],
) -> tuple[tuple[int, ...], Options]:
    """`attention_sizes` and `options` of a call, which programs repeat.

    Raises:
        ValueError: a shape or an option is wrong.
    """
    chosen = options(q[-1] if q else 0, causal, window, scale, layout, form)
    return attention_sizes(q, k, v, chosen.layout), chosen


def rows_of(shape: Sequence[int]) -> tuple[int, int]:
    """The number of rows of a tensor, and their length.

    Raises:
        ValueError: it has no rows.
    """
    if len(shape) == 2 and shape[1] != 0:
        return shape[0], shape[1]
    if len(shape) == 0 or shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(shape)}, which has no rows")
    return math.prod(shape[:-1]), shape[-1]


def check_shapes(expected: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> None:
    """That tensors, by name, found shape and needed shape, have these shapes.

    Raises:
        ValueError: one has not.
    """
    for name, found, needed in expected:
        if tuple(found) != tuple(needed):
            raise ValueError(f"{name} has shape {tuple(found)}, and needs {tuple(needed)}")


# Packed sequences.


def packed_sizes(
    q: Sequence[int], k: Sequence[int], v: Sequence[int]
) -> tuple[int, int, int, int, int]:
    """Heads, heads of keys, rows of queries, rows of keys and dimension of a head of tensors
    ``[rows, heads, dim]``.

    Raises:
        ValueError: shapes do not fit.
    """
    for name, shape in (("q", q), ("k", k), ("v", v)):
        if len(shape) != 3:
            raise ValueError(f"{name} has shape {tuple(shape)}, and needs [rows, heads, dim]")
    sizes = attention_sizes((1, *q), (1, *k), (1, *v), LAYOUTS.index("bshd"))
    _, heads, key_heads, queries, keys, dim = sizes
    return heads, key_heads, queries, keys, dim


def packed_options(
    dim: int,
    causal: bool,
    window: Optional[Window],
    scale: Optional[float],
    form: Optional[str],
) -> tuple[tuple[int, ...], float]:
    """Layout, mask, sides and form of packed attention, and its scale.

    Raises:
        ValueError: there is no such option.
    """
    chosen = options(dim, causal, window, scale, "bshd", form)
    return chosen[:-1], chosen.scale


def starts_of(lengths: Sequence[int], key_lengths: Sequence[int]) -> list[tuple[int, int]]:
    """The queries and keys before each sequence, and at the end those of all.

    Raises:
        ValueError: the lists differ in length, or a length is negative.
    """
    if len(lengths) != len(key_lengths):
        raise ValueError(
            f"there are {len(lengths)} lengths of queries, and {len(key_lengths)} of keys"
        )
    if min((*lengths, *key_lengths, 0)) < 0:
        raise ValueError("the length of a sequence must not be negative")
    starts = [(0, 0)]
    for queries, keys in zip(lengths, key_lengths):
        starts.append((starts[-1][0] + queries, starts[-1][1] + keys))
    return starts


# Mixtures of experts.

GATES = ("softmax", "sigmoid")
"""Gates, whose numbers are their places here."""
EXPERT_FORMS = ("portable", "hopper")
"""Forms of mixtures of experts, whose numbers are their places here plus one."""
_TILE_ROWS = 128


def expert_sizes(
    tokens: Sequence[int],
    logits: Sequence[int],
    up: Sequence[int],
    down: Sequence[int],
    top_k: int,
) -> tuple[int, int, int, int, int]:
    """Tokens, experts, choices of a token, elements of a token and of a hidden layer.

    Raises:
        ValueError: shapes do not fit.
    """
    if len(tokens) != 2 or len(down) != 3:
        raise ValueError(
            f"tokens has shape {tuple(tokens)} and down {tuple(down)}; they must be [tokens, dim] "
            "and [experts, dim, hidden]"
        )
    count, dim = tokens
    experts, _, hidden = down
    check_shapes(
        [
            ("down", down, (experts, dim, hidden)),
            ("up", up, (experts, 2, hidden, dim)),
            ("logits", logits, (count, experts)),
        ]
    )
    if not 1 <= top_k <= min(experts, 32):
        raise ValueError(f"top_k is {top_k}, and must be 1 to {min(experts, 32)}")
    return count, experts, top_k, dim, hidden


def expert_options(
    gate: str, renormalise: bool, capacity: Optional[int], form: Optional[str]
) -> tuple[int, int, int, int]:
    """Gate, renormalisation, capacity and form, as the C interface takes them.

    Raises:
        ValueError: there is no such option.
    """
    if gate not in GATES:
        raise ValueError(f"gate is {gate!r}, and must be one of {', '.join(GATES)}")
    if form is not None and form not in EXPERT_FORMS:
        raise ValueError(f"form is {form!r}, and must be one of {', '.join(EXPERT_FORMS)}, or None")
    if capacity is not None and capacity < 1:
        raise ValueError(f"capacity is {capacity}, and must be at least 1")
    number = 0 if form is None else EXPERT_FORMS.index(form) + 1
    return GATES.index(gate), int(renormalise), -1 if capacity is None else capacity, number


def plan_elements(tokens: int, experts: int, top_k: int) -> int:
    """Elements of the plan that a forward pass keeps: of each tile of rows four, of each expert two,
    of each choice three."""
    rows = tokens * top_k
    tiles = rows // _TILE_ROWS + min(experts, rows)
    return 4 * (1 + tiles) + 2 * experts + 3 * rows
