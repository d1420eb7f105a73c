"""`apex_cuda.patch` with PyTorch on the CPU: nothing there is ours; where a test says that a device
has the kernels, float64 arithmetic computes in place of them (`test_kernels_torch`)."""

import copy
import inspect
import pickle
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

try:
    import torch
    from torch import nn
    from torch.nn.functional import scaled_dot_product_attention
    from torch.utils.checkpoint import checkpoint
except ImportError:
    torch = nn = scaled_dot_product_attention = None

if torch is not None:
    from test_kernels_torch import Reference

    class Block(nn.Module):
        def __init__(self, width=128):
            super().__init__()
            self.norm = nn.RMSNorm(width, eps=1e-6)
            self.qkv = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
            self.layer_norm, self.softmax = nn.LayerNorm(width), nn.Softmax(dim=-1)

        def forward(self, x, mask=None):
            heads = (linear(self.norm(x)).unflatten(-1, (2, 64)) for linear in self.qkv)
            q, k, v = (x.transpose(1, 2) for x in heads)
            # By the name that this file imported.
            out = scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None)
            x = x + out.transpose(1, 2).flatten(-2)
            return self.softmax(self.layer_norm(x))

    class Model(nn.Module):
        def __init__(self, checkpoints=False):
            super().__init__()
            torch.manual_seed(1)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.checkpoints = checkpoints
            self.to(torch.bfloat16)

        def forward(self, x, mask=None):
            for block in self.blocks:
                again = self.checkpoints
                x = checkpoint(block, x, use_reentrant=False) if again else block(x, mask)
            return x


@unittest.skipIf(torch is None, "no PyTorch")
class Patch(unittest.TestCase):
    def setUp(self):
        import apex_cuda
        from apex_cuda import _patch

        self.apex, self.module = apex_cuda, _patch
        torch.manual_seed(2)
        self.x = torch.randn(2, 7, 128, dtype=torch.bfloat16)
        self.original = torch.nn.functional.scaled_dot_product_attention

    def tearDown(self):
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, self.original)
        self.assertIs(scaled_dot_product_attention, self.original)

    def with_kernels(self):
        """As if the CPU had the kernels; returns what computes in place of them."""
        from apex_cuda.kernels import _torch

        reference = Reference()
        for place, name, value in [
            (_torch, "_launch", reference),
            (_torch, "_plan", lambda *_arguments: (0, 2)),
            (self.module, "_unsupported", lambda *_arguments: None),
        ]:
            patch = mock.patch.object(place, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        return reference

    def reasons(self, patch):
        return {(entry.kind, entry.reason) for entry in patch.left}

    def test_on_the_cpu_all_is_left_alone_and_said(self):
        model = Model()
        expected = model(self.x)
        with self.apex.patch(model) as patch:
            self.assertIn("replaced: nothing so far", str(patch))
            self.assertTrue(torch.equal(model(self.x), expected))
            self.assertEqual(patch.replaced, [])
            cpu = "its tensors are on cpu, and kernels need a GPU"
            no_kernel = "there is no kernel for it without a residual and a ReLU"
            expected = {(kind, cpu) for kind in ("attention", "RMSNorm", "softmax")}
            self.assertEqual(self.reasons(patch), expected | {("LayerNorm", no_kernel)})
            attention = next(entry for entry in patch.left if entry.kind == "attention")
            self.assertEqual(attention.modules, {"blocks.0", "blocks.1"})
            self.assertEqual(attention.calls, 2)
            shown = (
                "attention bfloat16 [2, 2, 7, 64], causal, with gradients: 2 calls, blocks.0 and"
            )
            self.assertIn(shown, str(patch))
        self.assertIs(type(model), Model)
        self.assertIs(type(model.blocks[0].norm), nn.RMSNorm)
        self.assertNotIn("_apex_patch", vars(model.blocks[0]))

    def test_kernels_compute_forward_and_backward(self):
        for checkpoints in (False, True):
            with self.subTest(checkpoints=checkpoints):
                reference, model = self.with_kernels(), Model(checkpoints)
                names = [name for name, _ in model.named_parameters()]
                expected = model(self.x)
                wanted = torch.autograd.grad(expected.sum(-1).pow(2).mean(), model.parameters())
                with self.apex.patch(model, unmeasured=True) as patch:
                    found = model(self.x)
                    got = torch.autograd.grad(found.sum(-1).pow(2).mean(), model.parameters())
                kinds = {entry.kind for entry in patch.replaced}
                self.assertEqual(kinds, {"attention", "RMSNorm", "softmax"})
                forward = 2 if not checkpoints else 4
                self.assertEqual(reference.calls.count("attention_forward"), forward)
                self.assertEqual(reference.calls.count("attention_backward"), 2)
                self.assertEqual(reference.calls.count("rms_norm_gradient"), 6)
                torch.testing.assert_close(found, expected, rtol=0.02, atol=1e-3)
                for name, one, other in zip(names, got, wanted):
                    self.assertEqual(one.shape, other.shape, name)

    def test_calls_that_are_another_function_are_left_alone(self):
        self.with_kernels()
        q, k = torch.randn(2, 4, 8, 64), torch.randn(2, 2, 8, 64)
        mask, halved = torch.ones(8, 8, dtype=torch.bool), torch.randn(2, 4, 8, 128)[..., ::2]
        for reason, arguments, options in [
            ("it has a mask", (q, q, q, mask), {}),
            ("it has dropout", (q, q, q), {"dropout_p": 0.5}),
            ("its mask ends elsewhere", (q, q[:, :, 1:], q[:, :, 1:]), {"is_causal": True}),
            ("its heads of keys are not", (q, q[:, :1], q[:, :1]), {}),
            ("heads of 32", (q[..., :32].contiguous(),) * 3, {}),
            ("its tensors would be copied", (halved, halved, halved), {}),
            ("its tensors do not have four", (q[0], q[0], q[0]), {}),
            (None, (q, k, k), {"enable_gqa": True}),
            (None, (q, q, q), {"is_causal": True, "scale": 0.5}),
        ]:
            with self.subTest(reason):
                call = self.module._Call(
                    *arguments[:3],
                    len(arguments) > 3,
                    options.get("dropout_p", 0.0),
                    options.get("is_causal", False),
                    options,
                )
                _, found = call.decide(mock.Mock(unmeasured=True))
                self.assertEqual(found[: len(reason)] if reason else found, reason)

    def test_backends_that_the_program_chooses_are_kept(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        self.with_kernels()
        model = Model()
        with self.apex.patch(model, unmeasured=True) as patch:
            with sdpa_kernel(SDPBackend.MATH):
                model(self.x)
            chosen = "the program chooses among PyTorch's backends"
            self.assertIn(("attention", chosen), self.reasons(patch))
            # The same call without that choice is another decision.
            model(self.x)
            self.assertIn("attention", {entry.kind for entry in patch.replaced})

    def test_deterministic_algorithms_keep_pytorchs_gradients(self):
        self.with_kernels()
        model = Model()
        torch.use_deterministic_algorithms(True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        with self.apex.patch(model, unmeasured=True) as patch, torch.no_grad():
            model(self.x)
            self.assertIn("attention", {entry.kind for entry in patch.replaced})
        with self.apex.patch(model, unmeasured=True) as patch:
            model(self.x)
            self.assertNotIn("attention", {entry.kind for entry in patch.replaced})

    def test_what_was_not_measured_or_is_too_small_is_left_alone(self):
        self.with_kernels()
        model = Model()
        with self.apex.patch(model) as patch:
            model(self.x)
        self.assertEqual(patch.replaced, [])
        self.assertIn(
            ("attention", "no measurement of length 7: the shortest is 512"), self.reasons(patch)
        )

    def test_small_calls_on_a_gpu_are_left_alone_at_a_glance(self):
        model = Model()
        expected = model(self.x)
        look = mock.Mock(side_effect=AssertionError("a look at the whole call"))
        with mock.patch.object(self.module, "_is_on_gpu", lambda x: True):
            with self.apex.patch(model) as patch, mock.patch.object(patch, "_is_ours", look):
                self.assertTrue(torch.equal(model(self.x), expected))
                kinds = {entry.kind: entry.calls for entry in patch.left if entry.what}
                self.assertEqual(kinds, {"attention": 2, "RMSNorm": 6, "softmax": 2})
                self.assertIn("too small: the host takes longer", str(patch))

    def test_modules_that_are_never_ours(self):
        gives = nn.Module()
        gives.norms = nn.ModuleList(
            [nn.RMSNorm(8), nn.RMSNorm((2, 8), 1e-6), nn.RMSNorm(8, 1e-6, False), nn.LayerNorm(8)]
        )
        instance = nn.RMSNorm(8, 1e-6)
        instance.forward = lambda x: x
        gives.norms.append(instance)
        with self.apex.patch(gives) as patch:
            reasons = "\n".join(entry.reason for entry in patch.left)
        for part in ("no epsilon", "more than one", "no weight", "no kernel", "on the instance"):
            self.assertIn(part, reasons)

    def test_pytorchs_multihead_attention_is_ours_without_weights(self):
        reference = self.with_kernels()
        layer = nn.MultiheadAttention(128, 2, batch_first=True, dtype=torch.bfloat16)
        contiguous = mock.patch.object(self.module._Call, "_other_shapes", lambda self: None)
        with self.apex.patch(layer, unmeasured=True) as patch, contiguous:
            layer(self.x, self.x, self.x, need_weights=False)
            self.assertEqual([entry.kind for entry in patch.replaced], ["attention"])
            self.assertEqual(reference.calls, ["attention_forward"])
            layer(self.x, self.x, self.x, need_weights=True)
            self.assertEqual(reference.calls, ["attention_forward"])

    def test_other_models_and_threads_are_not_touched(self):
        reference, model, other = self.with_kernels(), Model(), Model()
        with self.apex.patch(model, unmeasured=True):
            other(self.x)
            q = torch.randn(1, 2, 8, 64)
            torch.nn.functional.scaled_dot_product_attention(q, q, q)
            self.assertEqual(reference.calls, [])

    def test_copies_and_pickles_are_not_patched(self):
        model = Model()
        with self.apex.patch(model):
            for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                self.assertIs(type(other), Model)
                self.assertIs(type(other.blocks[1].norm), nn.RMSNorm)
                self.assertNotIn("_apex_patch", vars(other.blocks[1].norm))
                self.assertTrue(torch.equal(other(self.x), model(self.x)))
            self.assertEqual(list(inspect.signature(model.forward).parameters), ["x", "mask"])
            self.assertIsInstance(model.blocks[0].norm, nn.RMSNorm)

    def test_it_is_undone_once_and_not_done_twice(self):
        model = Model()
        first = self.apex.patch(model)
        with self.assertRaises(ValueError):
            self.apex.patch(model.blocks[0])
        other = Model()
        second = self.apex.patch(other)
        self.apex.unpatch(model)
        first.remove()
        self.assertIsNot(torch.nn.functional.scaled_dot_product_attention, self.original)
        self.assertIsNot(type(other), Model)
        second.remove()
        self.apex.unpatch(model)

    def test_compiled_it_is_pytorchs(self):
        reference, model = self.with_kernels(), Model()
        expected = torch.compile(model, backend="eager", fullgraph=True)(self.x)
        torch._dynamo.reset()
        with self.apex.patch(model, unmeasured=True) as patch:
            found = torch.compile(model, backend="eager", fullgraph=True)(self.x)
        self.assertTrue(torch.equal(found, expected))
        self.assertEqual((reference.calls, patch.replaced), ([], []))


if __name__ == "__main__":
    unittest.main()
