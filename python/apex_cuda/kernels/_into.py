"""Operations on tensors of any library, into tensors that the caller has."""

import math
from collections.abc import Sequence
from typing import Any, Optional

from . import _interface, _problem
from ._problem import Window
from ._tensors import Tensor, borrow, stream_handle


def _run(
    operation: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    integers: Sequence[int],
    numbers: Sequence[float],
    stream: int,
    workspace: Optional[Tensor] = None,
) -> int:
    """Runs an operation on tensors of one device."""
    tensors = [*inputs, *outputs]
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device:
            raise ValueError(
                f"{tensors[0].name} is on device {device}, and {tensor.name} on {tensor.device}"
            )
    memory = (0, 0) if workspace is None else (workspace.address, 4 * math.prod(workspace.shape))
    operands = [word for tensor in tensors for word in tensor.operand]
    return _interface.run(operation, device, stream, operands, integers, numbers, *memory)


def _all(stream: int, written: bool = False, **tensors: Any) -> list[Tensor]:
    return [borrow(name, tensor, stream, written) for name, tensor in tensors.items()]


def attention_into(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    log_sum_exp: Any,
    *,
    causal: bool = False,
    window: Optional[Window] = None,
    scale: Optional[float] = None,
    layout: str = "bhsd",
    form: Optional[str] = None,
    stream: Any = None,
    workspace: Any = None,
) -> str:
    """Attention of any tensors that export DLPack, into ``out``; see `attention`.

    Args:
        out: as ``q``.
        log_sum_exp: float32, ``[batch, heads, rows]``: the logarithm of the sum of each row's
            exponentials.
        stream: the stream to work on, see the page; without it, the current one of PyTorch or CuPy
            if ``q`` is theirs, else the legacy default stream.
        workspace: float32, `attention_workspace` elements, which the stream's work may write to.
            Without it, memory is taken from the driver's pool in the order of the stream.

    Returns:
        The form that ran.

    Raises:
        TypeError, ValueError: a tensor is not as it must be.
        Error: the device or its driver refused or failed.
    """
    handle = stream_handle(stream, q)
    inputs = _all(handle, q=q, k=k, v=v)
    outputs = _all(handle, written=True, out=out, log_sum_exp=log_sum_exp)
    sizes, chosen = _attention(inputs, causal, window, scale, layout, form)
    batch, heads, _, queries, _, _ = sizes
    _problem.check_shapes(
        [
            ("out", outputs[0].shape, inputs[0].shape),
            ("log_sum_exp", outputs[1].shape, (batch, heads, queries)),
        ]
    )
    memory = None if workspace is None else borrow("workspace", workspace, handle, True)
    integers, numbers = [*sizes, *chosen[:-1]], [chosen.scale]
    ran = _run("attention_forward", inputs, outputs, integers, numbers, handle, memory)
    return _problem.FORMS[ran - 1]


def attention_backward_into(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    log_sum_exp: Any,
    out_gradient: Any,
    q_gradient: Any,
    k_gradient: Any,
    v_gradient: Any,
    *,
    causal: bool = False,
    window: Optional[Window] = None,
    scale: Optional[float] = None,
    layout: str = "bhsd",
    form: Optional[str] = None,
    stream: Any = None,
    workspace: Any = None,
) -> str:
    """The gradients of ``q``, ``k`` and ``v``, from what `attention_into` wrote and the gradient of
    ``out``. Options are those of the forward pass, but for the form.

    Returns, Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, q)
    given = {"q": q, "k": k, "v": v, "out": out, "log_sum_exp": log_sum_exp}
    inputs = _all(handle, **given, out_gradient=out_gradient)
    written = {"q_gradient": q_gradient, "k_gradient": k_gradient, "v_gradient": v_gradient}
    outputs = _all(handle, written=True, **written)
    sizes, chosen = _attention(inputs, causal, window, scale, layout, form)
    batch, heads, _, queries, _, _ = sizes
    _problem.check_shapes(
        [
            ("out", inputs[3].shape, inputs[0].shape),
            ("log_sum_exp", inputs[4].shape, (batch, heads, queries)),
            ("out_gradient", inputs[5].shape, inputs[0].shape),
            *((to.name, to.shape, of.shape) for to, of in zip(outputs, inputs)),
        ]
    )
    memory = None if workspace is None else borrow("workspace", workspace, handle, True)
    integers, numbers = [*sizes, *chosen[:-1]], [chosen.scale]
    ran = _run("attention_backward", inputs, outputs, integers, numbers, handle, memory)
    return _problem.FORMS[ran - 1]


def _attention(
    inputs: Sequence[Tensor],
    causal: bool,
    window: Optional[Window],
    scale: Optional[float],
    layout: str,
    form: Optional[str],
) -> tuple[tuple[int, ...], _problem.Options]:
    """Sizes and options of a call."""
    q, k, v = (tensor.shape for tensor in inputs[:3])
    sides = None if window is None else tuple(window)
    return _problem.attention(q, k, v, causal, sides, scale, layout, form)


def attention_workspace(
    q: Sequence[int],
    k: Sequence[int],
    *,
    layout: str = "bhsd",
    form: Optional[str] = None,
    backward: bool = False,
    device: int = 0,
) -> int:
    """Elements of ``workspace`` that `attention_into`, or `attention_backward_into`, needs for
    tensors of these shapes.

    Raises:
        ValueError: shapes do not fit.
        Error: there is no such device.
    """
    chosen = _problem.options(q[-1], False, None, None, layout, form)
    sizes = _problem.attention_sizes(q, k, k, chosen.layout)
    operation, operands = ("attention_backward", 9) if backward else ("attention_forward", 5)
    integers = [*sizes, *chosen[:-1]]
    found, _ = _interface.plan(operation, device, operands, integers, [chosen.scale])
    return -(-found // 4)


def packed_attention_into(
    q: Any,
    k: Any,
    v: Any,
    starts: Any,
    out: Any,
    log_sum_exp: Any,
    *,
    longest: tuple[int, int],
    causal: bool = False,
    window: Optional[Window] = None,
    scale: Optional[float] = None,
    form: Optional[str] = None,
    stream: Any = None,
) -> str:
    """Attention of packed sequences of any tensors that export DLPack, into ``out``; see
    `packed_attention`.

    Args:
        q, k, v, out: ``[rows, heads, dim]``.
        starts: int32, ``[sequences + 1, 2]``: the queries and keys before each sequence, and at the
            end those of all. It is not checked: with others, kernels access memory out of bounds.
        log_sum_exp: float32, ``rows · heads`` elements, of one sequence after another, each
            ``[heads, rows]``.
        longest: the most queries and the most keys of a sequence.
        form: as `packed_attention`.
        stream: as `attention_into`.

    Returns, Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, q)
    inputs = _all(handle, q=q, k=k, v=v, starts=starts)
    outputs = _all(handle, written=True, out=out, log_sum_exp=log_sum_exp)
    shapes = [tensor.shape for tensor in inputs]
    sizes = _problem.packed_sizes(*shapes[:3])
    chosen, scale = _problem.packed_options(sizes[4], causal, window, scale, form)
    _problem.check_shapes(
        [
            ("out", outputs[0].shape, shapes[0]),
            ("log_sum_exp", outputs[1].shape, (sizes[0] * sizes[2],)),
            ("starts", shapes[3], (*shapes[3][:1], 2)),
        ]
    )
    integers = [*sizes, *chosen, *longest, shapes[3][0] - 1]
    ran = _run("attention_sequences_forward", inputs, outputs, integers, [scale], handle)
    return _problem.FORMS[ran - 1]


def mixture_of_experts_into(
    tokens: Any,
    logits: Any,
    up: Any,
    down: Any,
    out: Any,
    experts: Any,
    weights: Any,
    loads: Any,
    drops: Any,
    *,
    top_k: int,
    bias: Any = None,
    gate: str = "softmax",
    renormalise: bool = True,
    capacity: Optional[int] = None,
    form: Optional[str] = None,
    stream: Any = None,
) -> str:
    """A mixture of experts of any tensors that export DLPack, into ``out``; see
    `mixture_of_experts`.

    Args:
        out: as ``tokens``.
        experts, weights: int32 and float32, ``[tokens, top_k]``: what tokens choose.
        loads: int32, ``[experts]``: the tokens that chose each.
        drops: int32, two elements: the choices that experts did not take, and the tokens of which no
            expert took any.
        stream: as `attention_into`.

    Returns:
        The form that ran.

    Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, tokens)
    inputs = _all(handle, tokens=tokens, up=up, down=down, logits=logits)
    routing = {"experts": experts, "weights": weights, "loads": loads, "drops": drops}
    outputs = _all(handle, written=True, out=out, **routing)
    x, up_shape, down_shape, of_logits = (tensor.shape for tensor in inputs)
    sizes = _problem.expert_sizes(x, of_logits, up_shape, down_shape, top_k)
    count, number = sizes[:2]
    needed = [x, (count, top_k), (count, top_k), (number,), (2,)]
    _problem.check_shapes([(to.name, to.shape, shape) for to, shape in zip(outputs, needed)])
    device = inputs[0].device
    if bias is None:
        inputs.append(_nothing("bias", "float32", device))
    else:
        inputs += _all(handle, bias=bias)
        _problem.check_shapes([("bias", inputs[-1].shape, (number,))])
    outputs += [_nothing("plan", "int32", device), _nothing("projections", inputs[0].dtype, device)]
    integers = [*sizes, *_problem.expert_options(gate, renormalise, capacity, form)]
    ran = _run("experts_forward", inputs, outputs, integers, [], handle)
    return _problem.EXPERT_FORMS[ran - 1]


def _nothing(name: str, dtype: str, device: int) -> Tensor:
    """An argument that is left out: a tensor without elements."""
    return Tensor(name, 0, (0,), dtype, device, None)


def rms_norm_into(
    x: Any, weight: Any, out: Any, *, epsilon: float = 1e-6, stream: Any = None
) -> None:
    """``x / sqrt(mean(x²) + epsilon) * weight`` along the last dimension, into ``out``.

    Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, x)
    inputs = _all(handle, x=x, weight=weight)
    outputs = _all(handle, written=True, out=out)
    _rows("rms_norm", inputs, outputs, [epsilon], handle)


def residual_rms_norm_into(
    x: Any,
    residual: Any,
    weight: Any,
    sum_out: Any,
    out: Any,
    *,
    epsilon: float = 1e-6,
    stream: Any = None,
) -> None:
    """``x + residual`` into ``sum_out``, and its `rms_norm_into` into ``out``.

    Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, x)
    inputs = _all(handle, x=x, residual=residual, weight=weight)
    outputs = _all(handle, written=True, sum_out=sum_out, out=out)
    _rows("residual_rms_norm", inputs, outputs, [epsilon], handle)


def residual_relu_layer_norm_into(
    x: Any,
    residual: Any,
    weight: Any,
    bias: Any,
    out: Any,
    *,
    epsilon: float = 1e-5,
    stream: Any = None,
) -> None:
    """``layer_norm(relu(x + residual))`` along the last dimension, into ``out``.

    Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, x)
    inputs = _all(handle, x=x, residual=residual, weight=weight, bias=bias)
    outputs = _all(handle, written=True, out=out)
    _rows("residual_relu_layer_norm", inputs, outputs, [epsilon], handle)


def softmax_into(x: Any, out: Any, *, stream: Any = None) -> None:
    """Softmax along the last dimension, into ``out``.

    Raises:
        As `attention_into`.
    """
    handle = stream_handle(stream, x)
    _rows("softmax", _all(handle, x=x), _all(handle, written=True, out=out), [], handle)


def _rows(
    operation: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    numbers: Sequence[float],
    stream: int,
) -> None:
    """Runs an operation on rows: vectors are as long as a row, all else is as ``x``."""
    x = inputs[0].shape
    rows, length = _problem.rows_of(x)
    for tensor in [*inputs, *outputs]:
        vector = tensor.name in ("weight", "bias")
        _problem.check_shapes([(tensor.name, tensor.shape, (length,) if vector else x)])
    _run(operation, inputs, outputs, [rows, length], numbers, stream)
