"""The kernels of ``apex-kernels`` on tensors of the program: attention, norms, softmax, experts.

Nothing is copied, and work runs on the program's own stream. Functions named ``…_into`` take any
tensors that export DLPack (CuPy, PyTorch, …) and write into tensors that the caller has. The
others take PyTorch's tensors: they are custom operators with gradients, and work under
``torch.compile``. PyTorch is imported when one of them is first called.

    from apex_cuda import kernels

    out = kernels.attention(q, k, v, causal=True)         # [batch, heads, rows, dim]
    total, y = kernels.residual_rms_norm(x, out, weight)  # tensors of one shape

The page ``docs/python.md`` says what each computes and what it needs.
"""

from typing import TYPE_CHECKING, Any

from ._interface import Error
from ._into import (
    attention_backward_into,
    attention_into,
    attention_workspace,
    mixture_of_experts_into,
    packed_attention_into,
    residual_relu_layer_norm_into,
    residual_rms_norm_into,
    rms_norm_into,
    softmax_into,
)

if TYPE_CHECKING:
    from ._torch import (
        Routing,
        Sequences,
        attention,
        attention_backward_form,
        mixture_of_experts,
        packed_attention,
        residual_relu_layer_norm,
        residual_rms_norm,
        rms_norm,
        softmax,
    )

__all__ = [
    "Error",
    "Routing",
    "Sequences",
    "attention",
    "attention_backward_form",
    "attention_backward_into",
    "attention_into",
    "attention_workspace",
    "mixture_of_experts",
    "mixture_of_experts_into",
    "packed_attention",
    "packed_attention_into",
    "residual_relu_layer_norm",
    "residual_relu_layer_norm_into",
    "residual_rms_norm",
    "residual_rms_norm_into",
    "rms_norm",
    "rms_norm_into",
    "softmax",
    "softmax_into",
]


def __getattr__(name: str) -> Any:
    """PyTorch's operators, when they are asked for."""
    if name in __all__:
        from . import _torch

        return getattr(_torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
