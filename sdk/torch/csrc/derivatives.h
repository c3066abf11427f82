// Derivatives that PyTorch does not have of operators which ATen composes of others and xpud computes with
// one kernel: those of linear in forward mode (torch.autograd.forward_ad, torch.func.jvp), and the second
// ones of attention. Where a program wants them, the operators are composed.
#pragma once

namespace xpud::shim {

// Takes the places of PyTorch's kernels for the derivatives of these operators. REQUIRES: ours are
// registered.
void RegisterDerivatives();

}  // namespace xpud::shim
