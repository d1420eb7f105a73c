"""PyTorch's operators: how they are registered, their shapes, their gradients.

Each operator has a function that runs it, one that says what it returns (`register_fake`, which
``torch.compile`` asks), and its gradient, which is an operator too. Operators take contiguous
tensors; the public functions below them see to that.

An operator written in Python costs tens of microseconds of the host in PyTorch's dispatcher. Calls
that nobody traces or watches do without it (`_Operator`).
"""

import functools
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional, Union

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _interface, _problem
from ._problem import Window
from ._tensors import torch_stream

_ELEMENTS = {getattr(torch, name): number for name, number in _interface.ELEMENTS.items()}

_Parameter = torch.nn.Parameter
_is_compiling = torch.compiler.is_compiling
_modes = torch._C._len_torch_dispatch_stack
_is_transformed = torch._C._are_functorch_transforms_active
_is_profiled = torch._C._autograd._profiler_enabled

_plan = functools.lru_cache(maxsize=4096)(_interface.plan)


def _launch(
    operation: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    integers: tuple[int, ...],
    numbers: tuple[float, ...],
    has_workspace: bool = False,
) -> int:
    """Runs an operation on the current stream of the tensors' device."""
    first = inputs[0]
    device = first.get_device()
    operands: list[int] = []
    for tensor in inputs:
        element = _ELEMENTS.get(tensor.dtype)
        if element is None:
            raise ValueError(f"apex_cuda.kernels.{operation} has no kernel for {tensor.dtype}")
        if tensor.get_device() != device or not first.is_cuda:
            raise ValueError(
                f"apex_cuda.kernels.{operation} needs tensors of one CUDA device, "
                f"not of {first.device} and {tensor.device}"
            )
        operands += (tensor.data_ptr(), tensor.numel(), element)
    for tensor in outputs:  # made like the inputs
        operands += (tensor.data_ptr(), tensor.numel(), _ELEMENTS[tensor.dtype])
    stream = torch_stream(device)
    if not has_workspace:
        return _interface.run(operation, device, stream, operands, integers, numbers)
    size, _ = _plan(operation, device, len(operands) // 3, integers, numbers)
    memory = first.new_empty(size, dtype=torch.uint8)
    workspace = (memory.data_ptr(), size)
    return _interface.run(operation, device, stream, operands, integers, numbers, *workspace)


def _is_plain(tensors: Sequence[Any]) -> bool:
    """Whether a call on these tensors may skip PyTorch's dispatcher: nothing but autograd would
    have to do with it. Whoever traces, transforms, watches or profiles calls sees operators."""
    if _is_compiling():
        return False
    if _modes() or _is_transformed() or _is_profiled() or forward_ad._current_level >= 0:
        return False
    for x in tensors:
        if type(x) is not Tensor and type(x) is not _Parameter:
            return False
    return True


class _Operator:
    """An operator ``apex_cuda::…`` that changes none of its arguments.

    Args:
        schema: its name, and the rest as `torch.library` takes it; tensors come first.
        run: computes it.
        fake: its outputs, for tensors without elements.
        gradient: what saves for the backward pass, and that pass, as
            `torch.library.register_autograd` takes them.
    """

    def __init__(
        self,
        schema: str,
        run: Callable[..., Any],
        fake: Callable[..., Any],
        gradient: Optional[tuple[Callable[..., None], Callable[..., Any]]] = None,
    ) -> None:
        name, _, signature = schema.partition("(")
        self.run = run
        self.tensors = signature.partition(")")[0].count("Tensor ")
        self.operator: Any = torch.library.custom_op(
            f"apex_cuda::{name}", run, mutates_args=(), schema=f"({signature}"
        )
        self.operator.register_fake(fake)
        self.function: Any = None
        if gradient is not None:
            save, backward = gradient
            self.operator.register_autograd(backward, setup_context=save)
            self.function = _function(name, run, save, backward)

    def __call__(self, *args: Any) -> Any:
        return self.plain(*args) if _is_plain(args[: self.tensors]) else self.operator(*args)

    def plain(self, *args: Any) -> Any:
        """A call on tensors of which `_is_plain` holds."""
        if self.function is not None and torch.is_grad_enabled():
            for x in args[: self.tensors]:
                if x.requires_grad:
                    return self.function.apply(*args)
        return self.run(*args)


def _function(
    name: str,
    run: Callable[..., Any],
    save: Callable[..., None],
    backward: Callable[..., Any],
) -> Any:
    """The same gradient for calls without the dispatcher. A `setup_context` of its own would have
    PyTorch inspect the signature at each call."""

    def forward(ctx: Any, *args: Any) -> Any:
        output = run(*args)
        save(ctx, args, output)
        return output

    once = torch.autograd.function.once_differentiable(backward)

    def backward_once(ctx: Any, *gradients: Any) -> Any:
        # PyTorch's wrapper switches recording off, which takes as long as a launch; it is off
        # unless gradients of gradients are wanted.
        return (once if torch.is_grad_enabled() else backward)(ctx, *gradients)

    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward_once)}
    return type(name, (torch.autograd.Function,), methods)


# Attention.


def _sizes(q: Tensor, k: Tensor, v: Tensor, options: list[int]) -> tuple[int, ...]:
    return _cached_sizes(q.shape, k.shape, v.shape, options[0])


_cached_sizes = functools.lru_cache(maxsize=4096)(_problem.attention_sizes)


def _attention_run(
    q: Tensor, k: Tensor, v: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    sizes = _sizes(q, k, v, options)
    batch, heads, _, queries, _, _ = sizes
    out, sums = torch.empty_like(q), q.new_empty((batch, heads, queries), dtype=torch.float32)
    if k.numel() == 0:  # nobody sees anything
        return out.zero_(), sums.fill_(float("-inf"))
    _launch("attention_forward", (q, k, v), (out, sums), (*sizes, *options), (scale,), True)
    return out, sums


def _attention_fake(
    q: Tensor, k: Tensor, v: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    batch, heads, _, queries, _, _ = _problem.attention_sizes(q.shape, k.shape, v.shape, options[0])
    sums = q.new_empty((batch, heads, queries), dtype=torch.float32)
    return q.new_empty(q.shape), sums


def _attention_backward_run(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    options: list[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = _sizes(q, k, v, options)
    if k.numel() == 0:
        return torch.zeros_like(q), torch.empty_like(k), torch.empty_like(v)
    if _backward_form(q, sizes, options) == "pytorch":
        return _pytorch_backward(gradient, q, k, v, out, sums, options, scale)
    gradients = (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v))
    inputs = (q, k, v, out, sums, gradient)
    _launch("attention_backward", inputs, gradients, (*sizes, *options), (scale,), True)
    return gradients


def _attention_backward_fake(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    options: list[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_BACKWARD = 9
"""Tensors of the backward pass."""


def _backward_form(q: Tensor, sizes: Sequence[int], options: Sequence[int]) -> str:
    """What computes the backward pass: one of the library's forms, or ``"pytorch"``."""
    integers = (*sizes, *options)
    _, number = _plan("attention_backward", q.get_device(), _BACKWARD, integers, (1.0,))
    form = _problem.FORMS[number - 1]
    chosen = options[-1] != 0
    return (
        "pytorch" if form == "flash" and not chosen and _has_pytorchs(q, sizes, options) else form
    )


def _has_pytorchs(q: Tensor, sizes: Sequence[int], options: Sequence[int]) -> bool:
    """Whether PyTorch's flash backward pass computes this. Where a row sees no key, its log-sum-exp
    would have to be another one than ours."""
    _, mask, _, _, _ = options
    batch, heads, _, queries, keys, dim = sizes
    major, minor = torch.cuda.get_device_capability(q.device)
    # For the largest heads it needs the shared memory of compute capabilities 8.0, 9.0 and 10.0.
    has_kernel = major >= 8 if dim <= 128 else minor == 0 and major in (8, 9, 10)
    return (
        has_kernel
        and torch.version.hip is None
        and torch.backends.cuda.is_flash_attention_available()
        and batch * heads * queries > 0
        and (mask == 0 or queries <= keys)
    )


def _pytorch_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    options: Sequence[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """FlashAttention-2's backward pass, which is part of PyTorch, from our outputs.

    It takes ``[batch, rows, heads, dim]``, with any strides, and the natural log-sum-exps of scaled
    scores as ``[batch, heads, rows]``, which are ours. Its windows stand where ours do: the last
    query at the last key.
    """
    layout, mask, left, right, _ = options
    given: tuple[Tensor, ...] = (gradient, q, k, v, out)
    if layout == 0:
        given = tuple(x.transpose(1, 2) for x in given)
    rows = [given[1].shape[1], given[2].shape[1]]
    nothing = q.new_empty(0, dtype=torch.uint64)  # the state of random numbers, for dropout
    found = torch.ops.aten._flash_attention_backward(
        *given,
        sums,
        *(None, None),
        *rows,
        0.0,
        mask == 1,
        *(nothing, nothing),
        scale=scale,
        window_size_left=left if mask == 2 and left >= 0 else None,
        window_size_right=right if mask == 2 and right >= 0 else None,
    )
    if layout == 0:
        found = tuple(x.transpose(1, 2) for x in found)
    dq, dk, dv = (x.contiguous() for x in found)
    return dq, dk, dv


_attention_backward = _Operator(
    "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums,"
    " int[] options, float scale) -> (Tensor, Tensor, Tensor)",
    _attention_backward_run,
    _attention_backward_fake,
)


def _attention_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, options, scale = inputs
    ctx.set_materialize_grads(False)  # those of the sums would be zeros that nobody reads
    ctx.save_for_backward(q, k, v, *output)
    ctx.options = _backward_options(options)
    ctx.scale = scale


def _backward_options(options: Sequence[int]) -> list[int]:
    """The form of the forward pass says nothing about that of the backward pass: but for the flash
    form, which a caller names to have the same sums in each run."""
    flash = _problem.FORMS.index("flash") + 1
    return [*options[:-1], flash if options[-1] == flash else 0]


def _attention_gradient(ctx: Any, gradient: Tensor, _of_sums: Any) -> tuple[Any, ...]:
    gradient = gradient.contiguous()
    found = _attention_backward(gradient, *ctx.saved_tensors, ctx.options, ctx.scale)
    return (*found, None, None)


_attention = _Operator(
    "attention_forward(Tensor q, Tensor k, Tensor v, int[] options, float scale)"
    " -> (Tensor, Tensor)",
    _attention_run,
    _attention_fake,
    (_attention_save, _attention_gradient),
)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: Optional[Window] = None,
    scale: Optional[float] = None,
    layout: str = "bhsd",
    form: Optional[str] = None,
    return_log_sum_exp: bool = False,
) -> Union[Tensor, tuple[Tensor, Tensor]]:
    """``softmax(scale · q kᵀ) v`` of bfloat16 or float16 tensors, with gradients.

    Query ``r`` stands at key ``r + keys - queries``: the last query at the last key.

    Args:
        q: ``[batch, heads, queries, dim]``; ``dim`` is 64, 128 or 256.
        k, v: ``[batch, key_heads, keys, dim]``; each of their heads serves ``heads / key_heads``
            heads of ``q``.
        causal: a query sees the keys up to its own place.
        window: how many keys before and after its own place a query sees; None is no limit.
        scale: what scores are multiplied by; ``1 / sqrt(dim)`` without it.
        layout: ``"bhsd"`` as above, or ``"bshd"``: ``[batch, rows, heads, dim]``. Tensors that are
            transposed from the other layout are taken as they are; others are made contiguous.
        form: ``"flash"``, ``"hopper"`` or ``"decode"``; the fastest without it.
        return_log_sum_exp: return the logarithm of the sum of each row's exponentials too,
            ``[batch, heads, queries]`` in float32, which has no gradient.

    The backward pass runs in the form that `attention_backward_form` says.

    Raises:
        ValueError: a shape or an option is wrong, or there is no kernel.
        apex_cuda.kernels.Error: the device or its driver refused or failed.
    """
    plain = _is_plain((q, k, v))
    sides = None if window is None else tuple(window)
    # Traced sizes may have no value to look up.
    find = _problem.attention if plain else _problem.attention.__wrapped__
    _, (*chosen, scale) = find(q.shape, k.shape, v.shape, causal, sides, scale, layout, form)
    # Tensors such as `x.view(b, s, h, d).transpose(1, 2)` are contiguous in the other layout.
    swap = not q.is_contiguous() and all(x.transpose(1, 2).is_contiguous() for x in (q, k, v))
    if swap:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        chosen[0] = 1 - chosen[0]
    call = _attention.plain if plain else _attention.operator
    out, sums = call(q.contiguous(), k.contiguous(), v.contiguous(), chosen, scale)
    out = out.transpose(1, 2) if swap else out
    return (out, sums.detach()) if return_log_sum_exp else out


def attention_backward_form(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool = False,
    window: Optional[Window] = None,
    layout: str = "bhsd",
    form: Optional[str] = None,
) -> str:
    """What computes the backward pass of `attention` on such tensors with these options.

    Returns:
        ``"hopper"``: our kernels, on compute capability 9.0. ``"pytorch"``: FlashAttention-2 in
        PyTorch, from our output and log-sum-exps, where there is no such kernel of ours. ``"flash"``: our portable kernels, where ``form="flash"`` asks for them or PyTorch
        has none either; they are many times slower.

    Raises:
        As `attention`.
    """
    sides = None if window is None else tuple(window)
    sizes, options = _problem.attention(
        q.shape, k.shape, k.shape, causal, sides, None, layout, form
    )
    return _backward_form(q, sizes, _backward_options(options[:-1]))


# Packed sequences.


class Sequences:
    """The lengths of the sequences of a packed batch, on the host and on a device.

    Args:
        lengths: rows of queries of each sequence.
        key_lengths: rows of keys; those of queries without it.
        device: of the tensors that hold the sequences.

    Raises:
        ValueError: the lists differ in length, or a length is negative.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        key_lengths: Optional[Sequence[int]] = None,
        *,
        device: Union[str, torch.device] = "cuda",
    ) -> None:
        key_lengths = lengths if key_lengths is None else key_lengths
        starts = _problem.starts_of(lengths, key_lengths)
        self.rows = starts[-1]
        """Rows of queries and of keys of all sequences."""
        self.longest = (max(lengths, default=0), max(key_lengths, default=0))
        """The most rows of queries and of keys of a sequence."""
        self.starts = torch.tensor(starts, dtype=torch.int32, device=device)
        """``[sequences + 1, 2]``: the rows before each sequence, and at the end those of all."""


def _packed_run(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    sizes = _problem.packed_sizes(q.shape, k.shape, v.shape)
    out = torch.empty_like(q)
    sums = q.new_empty(q.shape[0] * q.shape[1], dtype=torch.float32)
    outputs = (out, sums)
    integers = (*sizes, *options)
    _launch("attention_sequences_forward", (q, k, v, starts), outputs, integers, (scale,), True)
    return outputs


def _packed_fake(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[0] * q.shape[1], dtype=torch.float32)


def _packed_backward_run(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    starts: Tensor,
    options: list[int],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = _problem.packed_sizes(q.shape, k.shape, v.shape)
    gradients = (torch.empty_like(q), torch.empty_like(k), torch.empty_like(v))
    inputs = (q, k, v, out, sums, gradient, starts)
    integers = (*sizes, *options)
    _launch("attention_sequences_backward", inputs, gradients, integers, (scale,), True)
    return gradients


def _packed_backward_fake(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_packed_backward = _Operator(
    "packed_attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out,"
    " Tensor sums, Tensor starts, int[] options, float scale) -> (Tensor, Tensor, Tensor)",
    _packed_backward_run,
    _packed_backward_fake,
)


def _packed_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, starts, ctx.options, ctx.scale = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, starts)


def _packed_gradient(ctx: Any, gradient: Tensor, _of_sums: Any) -> tuple[Any, ...]:
    found = _packed_backward(gradient.contiguous(), *ctx.saved_tensors, ctx.options, ctx.scale)
    return (*found, None, None, None)


_packed = _Operator(
    "packed_attention_forward(Tensor q, Tensor k, Tensor v, Tensor starts, int[] options,"
    " float scale) -> (Tensor, Tensor)",
    _packed_run,
    _packed_fake,
    (_packed_save, _packed_gradient),
)


def packed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sequences: Sequences,
    *,
    causal: bool = False,
    window: Optional[Window] = None,
    scale: Optional[float] = None,
    form: Optional[str] = None,
) -> Tensor:
    """`attention` of sequences of different lengths that lie one after another, with gradients.

    Each sequence gives bit by bit what it gives alone in the same form, but for the gradient of
    ``q`` in the Hopper form, which varies in its last bits.

    Args:
        q: ``[rows, heads, dim]``, the rows of all sequences.
        k, v: ``[rows, key_heads, dim]``.
        sequences: their lengths, on the device of ``q``.
        causal, window, scale: as `attention`, for each sequence.
        form: ``"flash"`` or ``"hopper"``; without it, ``"hopper"`` on Hopper GPUs for heads of 64
            or 128 elements, and else ``"flash"``, which runs on all GPUs.

    Raises:
        As `attention`.
    """
    sizes = _problem.packed_sizes(q.shape, k.shape, v.shape)
    chosen, scale = _problem.packed_options(sizes[4], causal, window, scale, form)
    if (sizes[2], sizes[3]) != sequences.rows:
        raise ValueError(
            f"q and k have {sizes[2]} and {sizes[3]} rows, and the sequences "
            f"{sequences.rows[0]} and {sequences.rows[1]}"
        )
    options = [*chosen, *sequences.longest, sequences.starts.shape[0] - 1]
    given = (q.contiguous(), k.contiguous(), v.contiguous(), sequences.starts)
    out, _ = _packed(*given, options, scale)
    return out


# Mixtures of experts.


class Routing(NamedTuple):
    """What tokens chose; without gradients."""

    experts: Tensor
    """int32, ``[tokens, top_k]``, from the largest logit down."""
    weights: Tensor
    """float32, ``[tokens, top_k]``."""
    loads: Tensor
    """int32, ``[experts]``: the tokens that chose each."""
    drops: Tensor
    """int32, two elements: choices that experts did not take, and tokens of which none took any."""


def _experts_like(
    tokens: Tensor, down: Tensor, logits: Tensor, top_k: int, saves: bool
) -> tuple[Tensor, ...]:
    """The outputs of a forward pass, not written yet."""
    count, experts, hidden = tokens.shape[0], logits.shape[1], down.shape[2]
    whole = functools.partial(tokens.new_empty, dtype=torch.int32)
    return (
        tokens.new_empty(tokens.shape),
        whole((count, top_k)),
        tokens.new_empty((count, top_k), dtype=torch.float32),
        whole(experts),
        whole(2),
        whole(_problem.plan_elements(count, experts, top_k) if saves else 0),
        tokens.new_empty(2 * count * top_k * hidden if saves else 0),
    )


def _experts_run(
    tokens: Tensor,
    up: Tensor,
    down: Tensor,
    logits: Tensor,
    bias: Tensor,
    options: list[int],
    saves: bool,
) -> tuple[Tensor, ...]:
    top_k, *chosen = options
    sizes = _problem.expert_sizes(tokens.shape, logits.shape, up.shape, down.shape, top_k)
    outputs = _experts_like(tokens, down, logits, top_k, saves)
    inputs = (tokens, up, down, logits, bias)
    _launch("experts_forward", inputs, outputs, (*sizes, *chosen), (), True)
    return outputs


def _experts_fake(
    tokens: Tensor,
    up: Tensor,
    down: Tensor,
    logits: Tensor,
    bias: Tensor,
    options: list[int],
    saves: bool,
) -> tuple[Tensor, ...]:
    return _experts_like(tokens, down, logits, options[0], saves)


def _experts_backward_run(*args: Any) -> tuple[Tensor, ...]:
    *given, options = args
    tokens, up, down, logits = given[:4]
    top_k, *chosen = options
    sizes = _problem.expert_sizes(tokens.shape, logits.shape, up.shape, down.shape, top_k)
    outputs = tuple(torch.empty_like(x) for x in (tokens, up, down, logits))
    _launch("experts_backward", given, outputs, (*sizes, *chosen), (), True)
    return outputs


def _experts_backward_fake(
    tokens: Tensor, up: Tensor, down: Tensor, logits: Tensor, *_others: Any
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (tokens, up, down, logits))


_experts_backward = _Operator(
    "experts_backward(Tensor tokens, Tensor up, Tensor down, Tensor logits, Tensor experts,"
    " Tensor weights, Tensor loads, Tensor drops, Tensor plan, Tensor projections, Tensor gradient,"
    " int[] options) -> (Tensor, Tensor, Tensor, Tensor)",
    _experts_backward_run,
    _experts_backward_fake,
)


def _experts_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *given, _bias, ctx.options, _saves = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*given, *output[1:])


def _experts_gradient(ctx: Any, gradient: Tensor, *_of_routing: Any) -> tuple[Any, ...]:
    found = _experts_backward(*ctx.saved_tensors, gradient.contiguous(), ctx.options)
    return (*found, None, None, None)


_experts = _Operator(
    "experts_forward(Tensor tokens, Tensor up, Tensor down, Tensor logits, Tensor bias,"
    " int[] options, bool saves)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _experts_run,
    _experts_fake,
    (_experts_save, _experts_gradient),
)


def mixture_of_experts(
    tokens: Tensor,
    logits: Tensor,
    up: Tensor,
    down: Tensor,
    *,
    top_k: int,
    bias: Optional[Tensor] = None,
    gate: str = "softmax",
    renormalise: bool = True,
    capacity: Optional[int] = None,
    form: Optional[str] = None,
    return_routing: bool = False,
) -> Union[Tensor, tuple[Tensor, Routing]]:
    """``Σ w_e · down_e (silu(gate_e x) ∘ up_e x)`` over the ``top_k`` experts ``e`` of each token
    ``x``'s largest logits, with gradients of ``tokens``, ``logits``, ``up`` and ``down``.

    Args:
        tokens: bfloat16 or float16, ``[tokens, dim]``.
        logits: float32, ``[tokens, experts]``, the router's; at most 512 experts.
        up: of the type of ``tokens``, ``[experts, 2, hidden, dim]``: of each expert the gate's
            weights, then those of what it gates.
        down: the same, ``[experts, dim, hidden]``.
        top_k: experts that a token chooses, at most 32.
        bias: float32, ``[experts]``: what is added to the scores when a token chooses, and not to
            weights. It has no gradient.
        gate: ``"softmax"`` over all experts, or ``"sigmoid"`` of each logit.
        renormalise: divide a token's weights by their sum.
        capacity: most tokens that an expert takes, the first ones; all without it.
        form: ``"portable"`` or ``"hopper"``; the fastest without it.
        return_routing: return what tokens chose too.

    Raises:
        ValueError: a shape or an option is wrong, or there is no kernel.
        apex_cuda.kernels.Error: the device or its driver refused or failed.
    """
    _problem.expert_sizes(tokens.shape, logits.shape, up.shape, down.shape, top_k)
    options = [top_k, *_problem.expert_options(gate, renormalise, capacity, form)]
    if bias is None:
        bias = logits.new_empty(0)
    else:
        _problem.check_shapes([("bias", bias.shape, down.shape[:1])])
    given = (tokens, up, down, logits)
    saves = torch.is_grad_enabled() and any(x.requires_grad for x in given)
    contiguous = tuple(x.contiguous() for x in (*given, bias))
    out, *routing = _experts(*contiguous, options, saves)
    chosen = Routing(*(x.detach() for x in routing[:4]))
    return (out, chosen) if return_routing else out


# Rows: tensors of any number of dimensions, whose last one is a row.


def _like_first(x: Tensor, *_others: Any) -> Tensor:
    return x.new_empty(x.shape)


def _rows_run(operation: str) -> Callable[..., Tensor]:
    """Runs an operation whose tensors come before its numbers and whose output is as ``x``."""

    def run(x: Tensor, *others: Any) -> Tensor:
        tensors = [other for other in others if isinstance(other, Tensor)]
        y = torch.empty_like(x)
        _launch(operation, (x, *tensors), (y,), _problem.rows_of(x.shape), others[len(tensors) :])
        return y

    return run


def _gradient_run(
    operation: str, weight: int = 1, vectors: int = 1
) -> Callable[..., tuple[Tensor, ...]]:
    """The same with the gradients of ``x`` and of so many vectors as outputs. These are as the
    weight, which is the argument of that number."""

    def run(*args: Any) -> tuple[Tensor, ...]:
        tensors, x, vector = args[:-1], args[0], args[weight]
        outputs = (torch.empty_like(x), *[torch.empty_like(vector) for _ in range(vectors)])
        _launch(operation, tensors, outputs, _problem.rows_of(x.shape), args[-1:], True)
        return outputs

    return run


def _gradient_fake(vectors: int = 1) -> Callable[..., tuple[Tensor, ...]]:
    def fake(x: Tensor, *_others: Any) -> tuple[Tensor, ...]:
        return x.new_empty(x.shape), *(x.new_empty(x.shape[-1:]) for _ in range(vectors))

    return fake


def _pair_run(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    outputs = (torch.empty_like(x), torch.empty_like(x))
    sizes = _problem.rows_of(x.shape)
    _launch("residual_rms_norm", (x, residual, weight), outputs, sizes, (epsilon,))
    return outputs


def _pair_fake(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


_rms_norm_gradient = _Operator(
    "rms_norm_gradient(Tensor x, Tensor weight, Tensor gradient, float epsilon)"
    " -> (Tensor, Tensor)",
    _gradient_run("rms_norm_gradient"),
    _gradient_fake(),
)


def _rms_norm_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.epsilon = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    of_x, of_weight = _rms_norm_gradient(x, weight, gradient.contiguous(), ctx.epsilon)
    return of_x, of_weight, None


_rms_norm = _Operator(
    "rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor",
    _rows_run("rms_norm"),
    _like_first,
    (_rms_norm_save, _rms_norm_backward),
)

_residual_rms_norm_gradient = _Operator(
    "residual_rms_norm_gradient(Tensor sum, Tensor weight, Tensor gradient, Tensor sum_gradient,"
    " float epsilon) -> (Tensor, Tensor)",
    _gradient_run("residual_rms_norm_gradient"),
    _gradient_fake(),
)


def _residual_rms_norm_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, ctx.epsilon = inputs
    ctx.save_for_backward(output[0], weight)


def _residual_rms_norm_backward(ctx: Any, of_sum: Tensor, gradient: Tensor) -> tuple[Any, ...]:
    total, weight = ctx.saved_tensors
    given = (gradient.contiguous(), of_sum.contiguous())
    of_x, of_weight = _residual_rms_norm_gradient(total, weight, *given, ctx.epsilon)
    return of_x, of_x, of_weight, None


_residual_rms_norm = _Operator(
    "residual_rms_norm(Tensor x, Tensor residual, Tensor weight, float epsilon)"
    " -> (Tensor, Tensor)",
    _pair_run,
    _pair_fake,
    (_residual_rms_norm_save, _residual_rms_norm_backward),
)

_layer_norm_gradient = _Operator(
    "residual_relu_layer_norm_gradient(Tensor x, Tensor residual, Tensor weight, Tensor gradient,"
    " float epsilon) -> (Tensor, Tensor, Tensor)",
    _gradient_run("residual_relu_layer_norm_gradient", weight=2, vectors=2),
    _gradient_fake(2),
)


def _layer_norm_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, residual, weight, _, ctx.epsilon = inputs
    ctx.save_for_backward(x, residual, weight)


def _layer_norm_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    x, residual, weight = ctx.saved_tensors
    given = gradient.contiguous()
    of_x, *of_vectors = _layer_norm_gradient(x, residual, weight, given, ctx.epsilon)
    return of_x, of_x, *of_vectors, None


_layer_norm = _Operator(
    "residual_relu_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias, float epsilon)"
    " -> Tensor",
    _rows_run("residual_relu_layer_norm"),
    _like_first,
    (_layer_norm_save, _layer_norm_backward),
)

_softmax_gradient = _Operator(
    "softmax_gradient(Tensor y, Tensor gradient) -> Tensor",
    _rows_run("softmax_gradient"),
    _like_first,
)


def _softmax_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, gradient: Tensor) -> Tensor:
    found: Tensor = _softmax_gradient(*ctx.saved_tensors, gradient.contiguous())
    return found


_softmax = _Operator(
    "softmax(Tensor x) -> Tensor",
    _rows_run("softmax"),
    _like_first,
    (_softmax_save, _softmax_backward),
)


def _rows(x: Tensor, *, vectors: Sequence[str] = (), **others: Tensor) -> tuple[Tensor, ...]:
    """``x`` and other tensors, contiguous and of one type; those that are named are vectors as long
    as a row, the rest is as ``x``.

    Raises:
        ValueError: a shape or a type does not fit.
    """
    shape, dtype = x.shape, x.dtype
    _, length = _problem.rows_of(shape)
    for name, tensor in others.items():
        needed = (length,) if name in vectors else shape
        if tensor.shape != needed:
            _problem.check_shapes([(name, tensor.shape, needed)])
        if tensor.dtype != dtype:
            raise ValueError(f"{name} is {tensor.dtype} and x is {dtype}; they must be the same")
    return tuple(tensor.contiguous() for tensor in (x, *others.values()))


def rms_norm(x: Tensor, weight: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """``x / sqrt(mean(x²) + epsilon) * weight`` along the last dimension, with gradients.

    Args:
        x: bfloat16 or float16.
        weight: of the same type, as long as a row.

    Raises:
        ValueError: a shape or a type does not fit, or there is no kernel.
        apex_cuda.kernels.Error: the device or its driver refused or failed.
    """
    found: Tensor = _rms_norm(*_rows(x, vectors=("weight",), weight=weight), epsilon)
    return found


def residual_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, *, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """``x + residual``, and `rms_norm` of it, with gradients: what a transformer does between two
    blocks.

    Raises:
        As `rms_norm`.
    """
    tensors = _rows(x, vectors=("weight",), residual=residual, weight=weight)
    total, y = _residual_rms_norm(*tensors, epsilon)
    return total, y


def residual_relu_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """``layer_norm(relu(x + residual))`` along the last dimension, with gradients.

    Raises:
        As `rms_norm`.
    """
    vectors = {"weight": weight, "bias": bias}
    tensors = _rows(x, vectors=tuple(vectors), residual=residual, **vectors)
    found: Tensor = _layer_norm(*tensors, epsilon)
    return found


def softmax(x: Tensor) -> Tensor:
    """Softmax along the last dimension of a bfloat16 or float16 tensor, with gradients.

    Raises:
        As `rms_norm`.
    """
    found: Tensor = _softmax(*_rows(x))
    return found
