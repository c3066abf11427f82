// The HOST kernels of cuDNN, in the table of host_modules.h.
#pragma once

namespace xpud::kernels::cudnn {

// A convolution: ConvolutionOperands, workspace, its bytes, Problem.
inline constexpr char kConvolve[] = "cudnn_convolution";
// Problem; stores the bytes of workspace at the address that is its last argument.
inline constexpr char kPrepare[] = "cudnn_prepare";

}  // namespace xpud::kernels::cudnn
