"""PyTorch's custom operators: how they are registered, their shapes, their gradients.

Each operator has a function that runs it, one that says what it returns (`register_fake`, which
``torch.compile`` asks), and its gradient, which is an operator too. Operators take contiguous
tensors; the public functions below them see to that.
"""

import functools
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import torch
from torch import Tensor

from . import _interface, _problem
from ._problem import Window

_ELEMENTS = {getattr(torch, name): number for name, number in _interface.ELEMENTS.items()}

_workspace_bytes = functools.lru_cache(maxsize=4096)(_interface.workspace_bytes)


def _launch(
    operation: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    integers: Sequence[int],
    numbers: Sequence[float],
    has_workspace: bool = False,
) -> int:
    """Runs an operation on the current stream of the tensors' device."""
    tensors = [*inputs, *outputs]
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device or device.type != "cuda":
            raise ValueError(
                f"apex_cuda.kernels.{operation} needs tensors of one CUDA device, "
                f"not of {device} and {tensor.device}"
            )
        if tensor.dtype not in _ELEMENTS:
            raise ValueError(f"apex_cuda.kernels.{operation} has no kernel for {tensor.dtype}")
    workspace = None
    if has_workspace:
        args = (operation, device.index, len(tensors), tuple(integers), tuple(numbers))
        memory = torch.empty(_workspace_bytes(*args), dtype=torch.uint8, device=device)
        workspace = (memory.data_ptr(), memory.numel())
    operands = [
        _interface.Operand(tensor.data_ptr(), tensor.numel(), _ELEMENTS[tensor.dtype])
        for tensor in tensors
    ]
    stream = torch.cuda.current_stream(device).cuda_stream
    return _interface.run(operation, device.index, stream, operands, integers, numbers, workspace)


def _operator(schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """Registers an operator ``apex_cuda::…`` that changes none of its arguments."""
    name, _, signature = schema.partition("(")
    operator = torch.library.custom_op(
        f"apex_cuda::{name}", run, mutates_args=(), schema=f"({signature}"
    )
    operator.register_fake(fake)
    return operator


# Attention.


def _attention_outputs(
    q: Tensor, k: Tensor, v: Tensor, options: list[int]
) -> tuple[Tensor, Tensor]:
    batch, heads, _, queries, _, _ = _problem.attention_sizes(q.shape, k.shape, v.shape, options[0])
    sums = q.new_empty((batch, heads, queries), dtype=torch.float32)
    return q.new_empty(q.shape), sums


def _attention_run(
    q: Tensor, k: Tensor, v: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    sizes = _problem.attention_sizes(q.shape, k.shape, v.shape, options[0])
    out, sums = _attention_outputs(q, k, v, options)
    if k.numel() == 0:  # nobody sees anything
        return out.zero_(), sums.fill_(float("-inf"))
    _launch("attention_forward", [q, k, v], [out, sums], [*sizes, *options], [scale], True)
    return out, sums


def _attention_fake(
    q: Tensor, k: Tensor, v: Tensor, options: list[int], scale: float
) -> tuple[Tensor, Tensor]:
    return _attention_outputs(q, k, v, options)


_attention = _operator(
    "attention_forward(Tensor q, Tensor k, Tensor v, int[] options, float scale)"
    " -> (Tensor, Tensor)",
    _attention_run,
    _attention_fake,
)


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
    sizes = _problem.attention_sizes(q.shape, k.shape, v.shape, options[0])
    gradients = (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape))
    if k.numel() == 0:
        return gradients[0].zero_(), gradients[1], gradients[2]
    inputs = [q, k, v, out, sums, gradient]
    _launch("attention_backward", inputs, gradients, [*sizes, *options], [scale], True)
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


_attention_backward = _operator(
    "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums,"
    " int[] options, float scale) -> (Tensor, Tensor, Tensor)",
    _attention_backward_run,
    _attention_backward_fake,
)


def _attention_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, options, scale = inputs
    ctx.save_for_backward(q, k, v, *output)
    # The form of the forward pass says nothing about that of the backward pass: but for the flash
    # form, which a caller names to have the same sums in each run.
    flash = _problem.FORMS.index("flash") + 1
    ctx.options = [*options[:-1], flash if options[-1] == flash else 0]
    ctx.scale = scale


def _attention_gradient(ctx: Any, gradient: Tensor, _of_sums: Any) -> tuple[Any, ...]:
    gradient = gradient.contiguous()
    found = _attention_backward(gradient, *ctx.saved_tensors, ctx.options, ctx.scale)
    return (*found, None, None)


_attention.register_autograd(_attention_gradient, setup_context=_attention_save)


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

    Raises:
        ValueError: a shape or an option is wrong, or there is no kernel.
        apex_cuda.kernels.Error: the device or its driver refused or failed.
    """
    options = _problem.options(q.shape[-1], causal, window, scale, layout, form)
    _problem.attention_sizes(q.shape, k.shape, v.shape, options.layout)
    # Tensors such as `x.view(b, s, h, d).transpose(1, 2)` are contiguous in the other layout.
    swap = not q.is_contiguous() and all(x.transpose(1, 2).is_contiguous() for x in (q, k, v))
    if swap:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        options = options._replace(layout=1 - options.layout)
    q, k, v = (tensor.contiguous() for tensor in (q, k, v))
    out, sums = _attention(q, k, v, list(options[:-1]), options.scale)
    out = out.transpose(1, 2) if swap else out
    return (out, sums.detach()) if return_log_sum_exp else out


# Rows.


def _like_first(x: Tensor, *_others: Any) -> Tensor:
    return x.new_empty(x.shape)


def _rows_run(operation: str) -> Callable[..., Tensor]:
    """Runs an operation whose tensors come before its numbers and whose output is as ``x``."""

    def run(x: Tensor, *others: Any) -> Tensor:
        tensors = [other for other in others if isinstance(other, Tensor)]
        numbers = [other for other in others if not isinstance(other, Tensor)]
        y = x.new_empty(x.shape)
        _launch(operation, [x, *tensors], [y], list(x.shape), numbers)
        return y

    return run


def _gradient_run(operation: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """The same with the gradient of ``x`` and the terms of the weight's as outputs."""

    def run(x: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
        gradient, terms = _gradient_fake(x)
        epsilon = others[-1]
        _launch(operation, [x, *others[:-1]], [gradient, terms], list(x.shape), [epsilon])
        return gradient, terms

    return run


def _gradient_fake(x: Tensor, *_others: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.float32)


def _pair_run(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    total, y = _pair_fake(x, residual, weight, epsilon)
    inputs = [x, residual, weight]
    _launch("residual_rms_norm", inputs, [total, y], list(x.shape), [epsilon])
    return total, y


def _pair_fake(
    x: Tensor, residual: Tensor, weight: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


_rms_norm = _operator(
    "rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor", _rows_run("rms_norm"), _like_first
)
_rms_norm_gradient = _operator(
    "rms_norm_gradient(Tensor x, Tensor weight, Tensor gradient, float epsilon)"
    " -> (Tensor, Tensor)",
    _gradient_run("rms_norm_gradient"),
    _gradient_fake,
)
_residual_rms_norm = _operator(
    "residual_rms_norm(Tensor x, Tensor residual, Tensor weight, float epsilon)"
    " -> (Tensor, Tensor)",
    _pair_run,
    _pair_fake,
)
_residual_rms_norm_gradient = _operator(
    "residual_rms_norm_gradient(Tensor sum, Tensor weight, Tensor gradient, Tensor sum_gradient,"
    " float epsilon) -> (Tensor, Tensor)",
    _gradient_run("residual_rms_norm_gradient"),
    _gradient_fake,
)
_layer_norm = _operator(
    "residual_relu_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias, float epsilon)"
    " -> Tensor",
    _rows_run("residual_relu_layer_norm"),
    _like_first,
)
_layer_norm_gradient = _operator(
    "residual_relu_layer_norm_gradient(Tensor x, Tensor residual, Tensor weight, Tensor gradient,"
    " float epsilon) -> (Tensor, Tensor)",
    _gradient_run("residual_relu_layer_norm_gradient"),
    _gradient_fake,
)
_softmax = _operator("softmax(Tensor x) -> Tensor", _rows_run("softmax"), _like_first)
_softmax_gradient = _operator(
    "softmax_gradient(Tensor y, Tensor gradient) -> Tensor",
    _rows_run("softmax_gradient"),
    _like_first,
)


def _of_weight(terms: Tensor, weight: Tensor) -> Tensor:
    return terms.sum(0).to(weight.dtype)


def _rms_norm_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.epsilon = inputs
    ctx.save_for_backward(x, weight)


def _rms_norm_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    of_x, terms = _rms_norm_gradient(x, weight, gradient.contiguous(), ctx.epsilon)
    return of_x, _of_weight(terms, weight), None


def _residual_rms_norm_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, ctx.epsilon = inputs
    ctx.save_for_backward(output[0], weight)


def _residual_rms_norm_backward(ctx: Any, of_sum: Tensor, gradient: Tensor) -> tuple[Any, ...]:
    total, weight = ctx.saved_tensors
    given = (gradient.contiguous(), of_sum.contiguous())
    of_x, terms = _residual_rms_norm_gradient(total, weight, *given, ctx.epsilon)
    return of_x, of_x, _of_weight(terms, weight), None


def _layer_norm_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, residual, weight, _, ctx.epsilon = inputs
    ctx.save_for_backward(x, residual, weight)


def _layer_norm_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    x, residual, weight = ctx.saved_tensors
    gradient = gradient.contiguous()
    of_x, terms = _layer_norm_gradient(x, residual, weight, gradient, ctx.epsilon)
    of_bias = gradient.sum(0, dtype=torch.float32).to(weight.dtype)
    return of_x, of_x, _of_weight(terms, weight), of_bias, None


def _softmax_save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _softmax_backward(ctx: Any, gradient: Tensor) -> Tensor:
    found: Tensor = _softmax_gradient(*ctx.saved_tensors, gradient.contiguous())
    return found


_rms_norm.register_autograd(_rms_norm_backward, setup_context=_rms_norm_save)
_residual_rms_norm.register_autograd(
    _residual_rms_norm_backward, setup_context=_residual_rms_norm_save
)
_layer_norm.register_autograd(_layer_norm_backward, setup_context=_layer_norm_save)
_softmax.register_autograd(_softmax_backward, setup_context=_softmax_save)


def _rows(x: Tensor, others: Sequence[tuple[str, Tensor]]) -> tuple[Tensor, ...]:
    """``x`` and other tensors, vectors or as ``x``, as contiguous rows of one type.

    Raises:
        ValueError: a shape or a type does not fit.
    """
    _, length = _problem.rows_of(x.shape)
    for name, tensor in others:
        vector = name in ("weight", "bias")
        _problem.check_shapes([(name, tensor.shape, (length,) if vector else x.shape)])
        if tensor.dtype != x.dtype:
            raise ValueError(f"{name} is {tensor.dtype} and x is {x.dtype}; they must be the same")
    rows = (x, *(tensor for _, tensor in others))
    return tuple(
        (tensor if tensor.dim() == 1 and place else tensor.reshape(-1, length)).contiguous()
        for place, tensor in enumerate(rows)
    )


def rms_norm(x: Tensor, weight: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """``x / sqrt(mean(x²) + epsilon) * weight`` along the last dimension, with gradients.

    Args:
        x: bfloat16 or float16.
        weight: of the same type, as long as a row.

    Raises:
        ValueError: a shape or a type does not fit, or there is no kernel.
        apex_cuda.kernels.Error: the device or its driver refused or failed.
    """
    rows, weight = _rows(x, [("weight", weight)])
    found: Tensor = _rms_norm(rows, weight, epsilon)
    return found.view(x.shape)


def residual_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, *, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """``x + residual``, and `rms_norm` of it, with gradients: what a transformer does between two
    blocks.

    Raises:
        As `rms_norm`.
    """
    rows, more, weight = _rows(x, [("residual", residual), ("weight", weight)])
    total, y = _residual_rms_norm(rows, more, weight, epsilon)
    return total.view(x.shape), y.view(x.shape)


def residual_relu_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """``layer_norm(relu(x + residual))`` along the last dimension, with gradients.

    Raises:
        As `rms_norm`.
    """
    others = [("residual", residual), ("weight", weight), ("bias", bias)]
    rows, more, weight, bias = _rows(x, others)
    found: Tensor = _layer_norm(rows, more, weight, bias, epsilon)
    return found.view(x.shape)


def softmax(x: Tensor) -> Tensor:
    """Softmax along the last dimension of a bfloat16 or float16 tensor, with gradients.

    Raises:
        As `rms_norm`.
    """
    (rows,) = _rows(x, [])
    found: Tensor = _softmax(rows)
    return found.view(x.shape)
