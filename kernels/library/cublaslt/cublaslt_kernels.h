// The HOST kernels of kMatmul on NVIDIA GPUs: what a planner, perhaps in another process, launches in the one
// that has the device. They look plans up by problem, in a table of the process.
//   cublaslt          MatmulOperands, void* workspace, uint64_t its bytes, Problem
//   cublaslt_prepare  Problem, uint64_t* answer: the bytes of workspace that the algorithm takes. Not
//                     supported: cuBLASLt is not there, or has no algorithm.
#pragma once

namespace xpud::kernels::cublaslt {

constexpr char kProduct[] = "cublaslt";
constexpr char kPrepare[] = "cublaslt_prepare";

}  // namespace xpud::kernels::cublaslt
