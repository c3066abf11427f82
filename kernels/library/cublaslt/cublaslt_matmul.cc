#include "kernels/library/cublaslt/cublaslt_matmul.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/library/cublaslt/cublaslt_kernels.h"
#include "kernels/library/gpu/product_arguments.h"
#include "kernels/library/gpu/ptx.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/planners.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace cublaslt {
namespace {

using matmul::MatmulCall;
using matmul::MatmulOperands;
using matmul::MatmulProblem;
using matmul::Strides;

constexpr int64_t kMaxGroups =
    1 << 16;  // of an element-wise kernel; beyond that, lanes take several elements
constexpr int64_t kMaxGroupsY = 65535;
constexpr ops::DType kTypes[] = {ops::DType::kFloat32, ops::DType::kFloat64, ops::DType::kBFloat16,
                                 ops::DType::kFloat16};

size_t TypeIndex(ops::DType type) {
  return static_cast<size_t>(std::find(std::begin(kTypes), std::end(kTypes), type) - std::begin(kTypes));
}

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

gpu::StackStrides StridesOf(const Strides& s) { return {s.batch, s.row, s.column}; }

uint8_t AlignmentOf(const void* address) {
  const uint64_t value = reinterpret_cast<uintptr_t>(address);
  return static_cast<uint8_t>(value == 0 ? 128 : std::min<uint64_t>(128, value & (~value + 1)));
}

// For halves that are not at multiples of 16 bytes, kernels may cut k and then round the sum before they add
// a row to it (seen with cuBLASLt 13.1 in bf16).
bool RoundsBeforeBias(const MatmulCall& call) {
  const MatmulProblem& p = call.problem;
  if (ops::SizeOf(p.in) != 2) return false;
  const auto aligned = [](const void* data, const Strides& s) {
    const int64_t leading = s.column == 1 ? s.row : s.column;
    return AlignmentOf(data) >= 16 && leading % 8 == 0 && s.batch % 8 == 0;
  };
  return !aligned(call.operands.a, p.a) || !aligned(call.operands.b, p.b);
}

// Adds a launch of an element-wise kernel over stacks of `size` elements.
template <typename Arguments>
void LaunchElements(const Kernel* kernel, const Arguments& arguments, int64_t size, LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, std::min(kMaxGroups, CeilDivide(size, Arguments::kLanes)),
               std::min(kMaxGroupsY, arguments.batch));
  launch.group_size = {Arguments::kLanes, 1, 1};
  launch.Push(arguments);
}

void LaunchFinish(const Kernel* kernel, const MatmulCall& call, const void* sum, LaunchList& launches) {
  const MatmulProblem& p = call.problem;
  const MatmulOperands& o = call.operands;
  const gpu::FinishArguments arguments = {sum,
                                          o.c,
                                          o.out,
                                          StridesOf(p.c),
                                          StridesOf(p.out),
                                          p.batch,
                                          p.m,
                                          p.n,
                                          o.alpha,
                                          o.beta,
                                          static_cast<int64_t>(p.activation)};
  LaunchElements(kernel, arguments, p.m * p.n, launches);
}

// The entries of gpu/product.cu: product and finish for each type, then the copies.
size_t ProductOf(ops::DType type) { return 2 * TypeIndex(type); }
size_t FinishOf(ops::DType type) { return 2 * TypeIndex(type) + 1; }
size_t CopyOf(ops::DType type) {
  return 2 * std::size(kTypes) + static_cast<size_t>(std::countr_zero(ops::SizeOf(type))) - 1;
}

std::vector<std::string> OwnEntries() {
  std::vector<std::string> entries;
  for (const ops::DType type : kTypes)
    for (const char* const kernel : {"product_", "finish_"})
      entries.push_back(kernel + std::string(ops::Info(type).name));
  for (const int bytes : {2, 4, 8}) entries.push_back(absl::StrCat("copy_", bytes));
  return entries;
}

// Returns the strides of a factor without gaps, the result of copying one with `strides`.
Strides Packed(const Strides& strides, int64_t rows, int64_t columns) {
  return {strides.batch == 0 ? 0 : rows * columns, columns, 1};
}

}  // namespace

CublasltMatmul::CublasltMatmul(KernelStore& store, Library library, HostKernelRunner run,
                               const matmul::MatmulRates& rates)
    : own_(store, gpu::ProductPtx(), OwnEntries()), library_(library), rates_(rates) {
  if (library == Library::kNone) return;
  product_ = store.Add({ModuleImage::Format::kHost, std::string(kCublasltModule)}, kProduct);
  if (library == Library::kAsked)
    workspaces_.emplace(store, store.AddEntry(*product_, kPrepare), std::move(run));
}

absl::StatusOr<Readiness> CublasltMatmul::LaunchOwn(const MatmulCall& call, LaunchList& launches) {
  using gpu::ProductArguments;
  const MatmulProblem& p = call.problem;
  const MatmulOperands& o = call.operands;
  ASSIGN_OR_RETURN(const Kernel* kernel, own_.Find(ProductOf(p.in)));
  if (kernel == nullptr) return Readiness::kCompiling;
  const ProductArguments arguments = {o.a,
                                      o.b,
                                      o.c,
                                      o.out,
                                      StridesOf(p.a),
                                      StridesOf(p.b),
                                      StridesOf(p.c),
                                      StridesOf(p.out),
                                      p.batch,
                                      p.m,
                                      p.n,
                                      p.k,
                                      o.alpha,
                                      o.beta,
                                      static_cast<int64_t>(p.activation)};
  const int64_t tiles = CeilDivide(p.m, ProductArguments::kTile) * CeilDivide(p.n, ProductArguments::kTile);
  Launch& launch = launches.Add();
  launch.Reset(kernel, tiles, std::min(kMaxGroupsY, p.batch));
  launch.group_size = {ProductArguments::kLanes, 1, 1};
  launch.Push(arguments);
  return Readiness::kReady;
}

CublasltMatmul::Way CublasltMatmul::WayOf(const MatmulCall& read) {
  Way way;
  way.call = read;
  MatmulProblem& p = way.call.problem;
  way.copies_a = !matmul::IsMatrix(p.a, p.m, p.k);
  way.copies_b = !matmul::IsMatrix(p.b, p.k, p.n);
  if (way.copies_a) {
    p.a = Packed(p.a, p.m, p.k);
    way.call.operands.a = nullptr;
  }
  if (way.copies_b) {
    p.b = Packed(p.b, p.k, p.n);
    way.call.operands.b = nullptr;
  }
  Problem& problem = way.problem;
  problem.matmul = p;
  MatmulOperands& operands = way.call.operands;
  const bool row = p.plain && p.RowBias();
  problem.raw = !Finishes(p) || (row && RoundsBeforeBias(way.call));
  problem.bias = !problem.raw && row;
  if (problem.raw) {
    // Clears everything that the sum alone does not depend on, so that equal sums have equal keys.
    problem.matmul.c = problem.matmul.out = {};
    problem.matmul.has_c = false;
    problem.matmul.activation = ops::Activation::kNone;
    operands.out = nullptr;
    operands.c = nullptr;
  }
  problem.a_alignment = AlignmentOf(operands.a);
  problem.b_alignment = AlignmentOf(operands.b);
  problem.out_alignment = AlignmentOf(operands.out);
  problem.c_alignment = operands.c != nullptr ? AlignmentOf(operands.c) : problem.out_alignment;
  return way;
}

CublasltMatmul::Workspaces::Found CublasltMatmul::WorkspaceFor(const Problem& problem) {
  if (library_ == Library::kNone || !Multiplies(problem.matmul)) return {Workspaces::State::kRefused, 0};
  if (library_ == Library::kHere) return {Workspaces::State::kKnown, MostWorkspace(problem.matmul)};
  return workspaces_->Find(problem);
}

absl::StatusOr<Readiness> CublasltMatmul::LaunchLibrary(const MatmulCall& read, Way& way, void* memory,
                                                        Workspace workspace, LaunchList& launches) {
  const MatmulProblem& p = read.problem;
  MatmulOperands& operands = way.call.operands;
  const Kernel *copy = nullptr, *finish = nullptr;
  if (way.copies_a || way.copies_b) {
    ASSIGN_OR_RETURN(copy, own_.Find(CopyOf(p.in)));
    if (copy == nullptr) return Readiness::kCompiling;
  }
  if (way.problem.raw) {
    ASSIGN_OR_RETURN(finish, own_.Find(FinishOf(p.out_type)));
    if (finish == nullptr) return Readiness::kCompiling;
  }
  const auto copy_factor = [&](const void* source, const Strides& strides, int64_t rows,
                               int64_t columns) -> absl::StatusOr<const std::byte*> {
    const int64_t batch = strides.batch == 0 ? 1 : p.batch, element = ops::SizeOf(p.in);
    ASSIGN_OR_RETURN(void* target, workspace(static_cast<size_t>(batch * rows * columns * element)));
    const gpu::CopyArguments arguments = {source, target, StridesOf(strides), batch, rows, columns};
    LaunchElements(copy, arguments, rows * columns, launches);
    return static_cast<const std::byte*>(target);
  };
  if (way.copies_a) {
    ASSIGN_OR_RETURN(operands.a, copy_factor(read.operands.a, p.a, p.m, p.k));
  }
  if (way.copies_b) {
    ASSIGN_OR_RETURN(operands.b, copy_factor(read.operands.b, p.b, p.k, p.n));
  }
  if (way.problem.raw) {
    const size_t element = p.in == ops::DType::kFloat64 ? 8 : 4;
    ASSIGN_OR_RETURN(void* sum, workspace(static_cast<size_t>(p.batch * p.m * p.n) * element));
    operands.out = static_cast<std::byte*>(sum);
  }
  if (way.workspace_bytes != 0 && memory == nullptr) {
    ASSIGN_OR_RETURN(memory, workspace(way.workspace_bytes));
  }
  Launch& launch = launches.Add();
  launch.Reset(product_, 1);
  launch.Push(operands);
  launch.Push(memory);
  launch.Push(way.workspace_bytes);
  launch.Push(way.problem);
  if (way.problem.raw) LaunchFinish(finish, read, operands.out, launches);
  return Readiness::kReady;
}

// One after the other, so they share the library's workspace. Factors that must be copied are not cut: each
// piece would copy one of them as a whole.
absl::StatusOr<std::optional<Readiness>> CublasltMatmul::LaunchPieces(const MatmulCall& call,
                                                                      Workspace workspace,
                                                                      LaunchList& launches) {
  const std::vector<MatmulCall> pieces = matmul::Cut(call, rates_);
  std::vector<Way> ways;
  uint64_t most = 0;
  bool all_known = true;
  for (const MatmulCall& piece : pieces) {
    Way& way = ways.emplace_back(WayOf(piece));
    if (way.copies_a || way.copies_b) return std::nullopt;
    const Workspaces::Found found = WorkspaceFor(way.problem);
    if (found.state == Workspaces::State::kRefused) return std::nullopt;
    all_known &= found.state == Workspaces::State::kKnown;
    way.workspace_bytes = found.bytes;
    most = std::max(most, found.bytes);
  }
  if (!all_known) return Readiness::kCompiling;
  void* memory = nullptr;
  if (most != 0) {
    ASSIGN_OR_RETURN(memory, workspace(most));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    ASSIGN_OR_RETURN(const Readiness ready, LaunchLibrary(pieces[i], ways[i], memory, workspace, launches));
    if (ready != Readiness::kReady) return ready;
  }
  return Readiness::kReady;
}

absl::StatusOr<Readiness> CublasltMatmul::Plan(const OpCall& call, Workspace workspace,
                                               LaunchList& launches) {
  ASSIGN_OR_RETURN(const MatmulCall read, matmul::ReadMatmul(call));
  if (read.problem.Empty()) return Readiness::kReady;
  if (library_ != Library::kNone && matmul::IsLong(read.problem, rates_)) {
    ASSIGN_OR_RETURN(const std::optional<Readiness> cut, LaunchPieces(read, workspace, launches));
    if (cut) return *cut;
  }
  Way way = WayOf(read);
  const Workspaces::Found found = WorkspaceFor(way.problem);
  way.workspace_bytes = found.bytes;
  switch (found.state) {
    case Workspaces::State::kAsked:
      return Readiness::kCompiling;
    case Workspaces::State::kRefused:
      return LaunchOwn(read, launches);
    case Workspaces::State::kKnown:
      return LaunchLibrary(read, way, nullptr, workspace, launches);
  }
  return absl::InternalError("unreachable");
}

}  // namespace cublaslt

std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store, HostKernelRunner run,
                                              const matmul::MatmulRates& rates) {
  using Matmul = cublaslt::CublasltMatmul;
  if (run != nullptr) return std::make_unique<Matmul>(store, Matmul::Library::kAsked, std::move(run), rates);
  const bool here = cublaslt::Api::Get().ok();
  return std::make_unique<Matmul>(store, here ? Matmul::Library::kHere : Matmul::Library::kNone, nullptr,
                                  rates);
}

}  // namespace xpud::kernels
