// The device has no sparse tensors. Creating one, in any layout, and computing with one fail.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>

namespace xpud::shim {
namespace {

void RefuseSparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "xpud has no sparse tensors (", toString(op.operator_name()),
                              "): use a dense one, or a CPU tensor");
}

// Constructors of compressed tensors. They have composite kernels, which precede a backend's fallback.
constexpr std::array kCompressedMakers = {
    "zeros",
    "sparse_compressed_tensor.comp_plain_value",
    "sparse_compressed_tensor.comp_plain_value_size",
    "_sparse_compressed_tensor_unsafe",
    "_sparse_compressed_tensor_with_dims",
};

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* name : kCompressedMakers)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc",
                           "_to_sparse_bsr", "_to_sparse_bsc"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
  }
}

}  // namespace
}  // namespace xpud::shim
