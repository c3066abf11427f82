#include "kernels/library/cublaslt/cublaslt_plan.h"

#include <algorithm>

namespace xpud::kernels::cublaslt {
namespace {

using matmul::MatmulProblem;
using matmul::Strides;

constexpr size_t kMaxWorkspace = size_t{32} << 20;
constexpr int64_t kMaxBatch = 65535;
constexpr int64_t kMaxSize = INT32_MAX;
constexpr uintptr_t kNoAddress = uintptr_t{1} << 32;  // a multiple of any alignment; never read

DataType TypeOf(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat64:
      return DataType::kFloat64;
    case ops::DType::kFloat16:
      return DataType::kFloat16;
    case ops::DType::kBFloat16:
      return DataType::kBFloat16;
    default:
      return DataType::kFloat32;
  }
}

bool RowMajor(const Strides& s, int64_t columns) { return s.column == 1 && s.row >= columns; }

// Returns true if c can be cuBLASLt's addend: a matrix with the layout of out.
bool IsAddend(const MatmulProblem& p) {
  return p.c.column == 1 && p.c.row >= p.n && (p.batch == 1 || p.c.batch != 0);
}

Epilogue EpilogueOf(const Problem& problem) {
  const bool bias = problem.bias;
  if (problem.raw) return Epilogue::kDefault;
  switch (problem.matmul.activation) {
    case ops::Activation::kRelu:
      return bias ? Epilogue::kReluBias : Epilogue::kRelu;
    case ops::Activation::kGeluTanh:
      return bias ? Epilogue::kGeluBias : Epilogue::kGelu;
    default:
      return bias ? Epilogue::kBias : Epilogue::kDefault;
  }
}

// Creates the layout of a stack of column-major matrices.
Status Create(const Api& api, Layout* layout, DataType type, int64_t rows, int64_t columns, int64_t leading,
              int64_t batch, int64_t batch_stride) {
  const int32_t count = static_cast<int32_t>(batch);
  Status status =
      api.layout_create(layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), leading);
  if (status == Status::kSuccess && batch > 1)
    status = api.layout_set(*layout, LayoutAttribute::kBatchCount, &count, sizeof(count));
  if (status == Status::kSuccess && batch > 1)
    status = api.layout_set(*layout, LayoutAttribute::kBatchStride, &batch_stride, sizeof(batch_stride));
  return status;
}

}  // namespace

// Enough for algorithms that cut k, but not too much for small products.
size_t MostWorkspace(const MatmulProblem& p) {
  const double sums = 4.0 * p.batch * p.m * p.n;
  const size_t wanted = static_cast<size_t>(std::min(32 * sums, 1.0 * kMaxWorkspace));
  return std::min(kMaxWorkspace, (wanted + (size_t{1} << 20) - 1) >> 20 << 20);
}

ze_result_t ResultOf(Status status) {
  switch (status) {
    case Status::kSuccess:
      return ZE_RESULT_SUCCESS;
    case Status::kAllocFailed:
      return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    case Status::kNotSupported:
      return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    default:
      return ZE_RESULT_ERROR_UNKNOWN;
  }
}

bool Multiplies(const MatmulProblem& p) {
  return p.k > 0 && p.batch <= kMaxBatch && std::max({p.m, p.n, p.k}) <= kMaxSize;
}

bool Finishes(const MatmulProblem& p) {
  if (!RowMajor(p.out, p.n)) return false;
  if (p.has_c && !(p.plain && p.RowBias()) && !IsAddend(p)) return false;
  if (p.in == ops::DType::kFloat64)
    return p.activation == ops::Activation::kNone && (!p.has_c || IsAddend(p));
  return p.activation == ops::Activation::kNone || p.activation == ops::Activation::kRelu;
}

Plan::~Plan() {
  for (const Layout layout : {a_, b_, c_, out_})
    if (layout != nullptr) api_.layout_destroy(layout);
  for (const Product& product : idle_) api_.desc_destroy(product.desc);
}

// cuBLASLt's matrices are column-major, so it computes out^T = b^T a^T.
Status Plan::MakeLayouts() {
  const Api& api = api_;
  const MatmulProblem& p = problem_.matmul;
  const DataType in = TypeOf(p.in), out = OutputType();
  const Strides d = problem_.raw ? Strides{p.m * p.n, p.n, 1} : p.out;
  const Strides c = p.has_c && !problem_.bias && !problem_.raw ? p.c : d;
  Status status = RowMajor(p.b, p.n) ? Create(api, &b_, in, p.n, p.k, p.b.row, p.batch, p.b.batch)
                                     : Create(api, &b_, in, p.k, p.n, p.b.column, p.batch, p.b.batch);
  const auto then = [&](auto step) {
    if (status == Status::kSuccess) status = step();
  };
  then([&] {
    return RowMajor(p.a, p.k) ? Create(api, &a_, in, p.k, p.m, p.a.row, p.batch, p.a.batch)
                              : Create(api, &a_, in, p.m, p.k, p.a.column, p.batch, p.a.batch);
  });
  then([&] { return Create(api, &c_, out, p.n, p.m, std::max(c.row, p.n), p.batch, c.batch); });
  then([&] { return Create(api, &out_, out, p.n, p.m, std::max(d.row, p.n), p.batch, d.batch); });
  return status;
}

DataType Plan::OutputType() const {
  const MatmulProblem& p = problem_.matmul;
  if (!problem_.raw) return TypeOf(p.out_type);
  return p.in == ops::DType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
}

Status Plan::MakeProduct(Product& product) const {
  const Api& api = api_;
  const MatmulProblem& p = problem_.matmul;
  const bool wide = p.in == ops::DType::kFloat64;
  const DataType out = OutputType();
  const auto transposed = [](bool rows) {
    return static_cast<int32_t>(rows ? Operation::kNone : Operation::kTranspose);
  };
  const int32_t transpose_a = transposed(RowMajor(p.b, p.n)), transpose_b = transposed(RowMajor(p.a, p.k));
  const Epilogue epilogue = EpilogueOf(problem_);
  Status status = api.desc_create(&product.desc, wide ? ComputeType::kFloat64 : ComputeType::kFloat32,
                                  wide ? DataType::kFloat64 : DataType::kFloat32);
  const auto set = [&](DescAttribute attribute, const auto& value) {
    if (status == Status::kSuccess) status = api.desc_set(product.desc, attribute, &value, sizeof(value));
  };
  set(DescAttribute::kTransposeA, transpose_a);
  set(DescAttribute::kTransposeB, transpose_b);
  set(DescAttribute::kEpilogue, epilogue);
  if (problem_.bias) set(DescAttribute::kBiasType, out);
  // The library chooses by the alignment of the address, so it needs one before.
  if (problem_.bias && status == Status::kSuccess)
    status = SetBias(product, reinterpret_cast<const void*>(kNoAddress + problem_.c_alignment));
  if (status != Status::kSuccess && product.desc != nullptr) api.desc_destroy(product.desc);
  return status;
}

Status Plan::SetBias(Product& product, const void* bias) const {
  product.bias = bias;
  return api_.desc_set(product.desc, DescAttribute::kBiasPointer, &bias, sizeof(bias));
}

Status Plan::Take(Product& product) {
  MutexLock lock(mutex_);
  if (idle_.empty()) return MakeProduct(product);
  product = idle_.back();
  idle_.pop_back();
  return Status::kSuccess;
}

void Plan::Return(const Product& product) {
  MutexLock lock(mutex_);
  idle_.push_back(product);
}

Status Plan::Choose(Handle handle) {
  const Api& api = api_;
  Preference preference = nullptr;
  Status status = api.preference_create(&preference);
  if (status != Status::kSuccess) return status;
  status = api.preference_set(preference, PreferenceAttribute::kMaxWorkspaceBytes, &most_workspace_,
                              sizeof(most_workspace_));
  // Parts of a sum are not rounded to 16 bits before they are added.
  if (status == Status::kSuccess)
    status = api.preference_set(preference, PreferenceAttribute::kReductionSchemes, &kReduceInComputeType,
                                sizeof(kReduceInComputeType));
  // Its A is our b.
  const std::pair<PreferenceAttribute, uint8_t> alignments[] = {
      {PreferenceAttribute::kAlignmentA, problem_.b_alignment},
      {PreferenceAttribute::kAlignmentB, problem_.a_alignment},
      {PreferenceAttribute::kAlignmentC, problem_.bias ? problem_.out_alignment : problem_.c_alignment},
      {PreferenceAttribute::kAlignmentD, problem_.out_alignment}};
  for (const auto& [attribute, alignment] : alignments) {
    const uint32_t bytes = alignment;
    if (status == Status::kSuccess) status = api.preference_set(preference, attribute, &bytes, sizeof(bytes));
  }
  Heuristic best = {};
  int found = 0;
  if (status == Status::kSuccess)
    status = api.heuristics(handle, idle_.front().desc, b_, a_, c_, out_, preference, 1, &best, &found);
  api.preference_destroy(preference);
  if (status != Status::kSuccess) return status;
  if (found == 0 || best.state != Status::kSuccess) return Status::kNotSupported;
  algo_ = best.algo;
  workspace_bytes_ = best.workspace_bytes;
  ready_ = true;
  return Status::kSuccess;
}

Plan::Prepared Plan::Prepare(Handle handle) {
  MutexLock lock(mutex_);
  if (ready_) return {Status::kSuccess, workspace_bytes_};
  if (idle_.empty()) {
    Product product;
    Status status = out_ == nullptr ? MakeLayouts() : Status::kSuccess;
    if (status == Status::kSuccess) status = MakeProduct(product);
    if (status != Status::kSuccess) return {status, 0};
    idle_.push_back(product);
  }
  return {Choose(handle), workspace_bytes_};
}

Status Plan::Run(Handle handle, const matmul::MatmulOperands& operands, void* workspace,
                 size_t workspace_bytes, void* stream) {
  Product product;
  Status status = Take(product);
  if (status != Status::kSuccess) return status;
  if (problem_.bias && product.bias != operands.c) status = SetBias(product, operands.c);
  if (status == Status::kSuccess)
    status = Multiply(handle, product, operands, workspace, workspace_bytes, stream);
  Return(product);
  return status;
}

Status Plan::Multiply(Handle handle, const Product& product, const matmul::MatmulOperands& operands,
                      void* workspace, size_t workspace_bytes, void* stream) const {
  const MatmulProblem& p = problem_.matmul;
  const bool adds = p.has_c && !problem_.bias && !problem_.raw, wide = p.in == ops::DType::kFloat64;
  const double wide_alpha = problem_.raw ? 1 : operands.alpha, wide_beta = adds ? operands.beta : 0;
  const float alpha = static_cast<float>(wide_alpha), beta = static_cast<float>(wide_beta);
  return api_.matmul(handle, product.desc, wide ? static_cast<const void*>(&wide_alpha) : &alpha, operands.b,
                     b_, operands.a, a_, wide ? static_cast<const void*>(&wide_beta) : &beta,
                     adds ? operands.c : operands.out, c_, operands.out, out_, &algo_, workspace,
                     workspace_bytes, stream);
}

}  // namespace xpud::kernels::cublaslt
