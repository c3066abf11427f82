// Forward-mode differentiation (torch.autograd.forward_ad, torch.func.jvp) of operators that ATen composes of
// others, and that xpud computes with one kernel: PyTorch then has only their backward derivative. An input
// with a tangent has them composed.
#pragma once

namespace xpud::shim {

// Takes the places of PyTorch's kernels for the derivatives of these operators. REQUIRES: ours are
// registered.
void RegisterForwardMode();

}  // namespace xpud::shim
