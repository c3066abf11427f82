// Derivatives that PyTorch lacks for operators that are one kernel here, while ATen composes them of others:
// the forward mode of linear (torch.autograd.forward_ad, torch.func.jvp), and second derivatives of
// attention. If a program needs them, these operators are composed as in ATen.
#pragma once

namespace xpud::shim {

// Replaces PyTorch's kernels for the derivatives of these operators. REQUIRES: our operators are registered.
void RegisterDerivatives();

}  // namespace xpud::shim
