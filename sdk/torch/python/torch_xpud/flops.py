"""Numbers of floating-point operations, for torch.utils.flop_counter.FlopCounterMode.

It knows the operators that PyTorch's own devices run. xpud runs `linear_backward` and fused attention instead of some of them, and compiled graphs run
products with their activation.
"""

import math

import torch

from . import imports


def _linear_backward(input_shape, gradient_shape, weight_shape, output_mask, *arguments, out_shape=None, **options):
    """Counts two operations for each multiplication of a row with the weight, for each gradient that is a product."""
    rows = 1
    for size in gradient_shape[:-1]:
        rows *= size
    return 2 * rows * weight_shape[0] * weight_shape[1] * (bool(output_mask[0]) + bool(output_mask[1]))


def _activated_product(bias_shape, a_shape, b_shape, activation, *arguments, out_shape=None, **options):
    """Counts the product, as PyTorch does for addmm."""
    return 2 * math.prod(a_shape) * b_shape[-1]


def _register(module):
    aten = torch.ops.aten
    for operator, formula in (
        (aten.linear_backward, _linear_backward),
        (torch.ops.xpud.activated_product, _activated_product),
        (aten._scaled_dot_product_fused_attention_overrideable, module.sdpa_flop),
        (aten._scaled_dot_product_fused_attention_overrideable_backward, module.sdpa_backward_flop),
    ):
        if operator not in module.flop_registry:
            get_raw = formula not in (_linear_backward, _activated_product)  # PyTorch's formulas take shapes already
            module.register_flop_formula(operator, get_raw=get_raw)(formula)


def install():
    imports.when_imported("torch.utils.flop_counter", _register)
