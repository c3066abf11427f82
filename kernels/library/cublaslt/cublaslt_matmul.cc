#include "kernels/library/cublaslt/cublaslt_matmul.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/library/gpu/ptx.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels {
namespace cublaslt {
namespace {

using matmul::MatmulCall;
using matmul::MatmulOperands;
using matmul::MatmulProblem;
using matmul::Strides;

constexpr size_t kMostPlans = 4096;
constexpr int64_t kMostGroups = 1 << 16;  // of an element-wise kernel: lanes then take several elements
constexpr int64_t kMostGroupsY = 65535;
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

// Kernels for halves that are not at multiples of 16 bytes may cut k, and then round the sum before they add
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

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

void RunPlan(Plan& plan, const void* const* args, void* scratch) {
  auto& list = *static_cast<xpud_native_list_t*>(scratch);
  list.result = plan.Run(Argument<MatmulOperands>(args, 0), Argument<void*>(args, 1),
                         Argument<size_t>(args, 2), list.context, list.stream);
}

void RunPlanned(const void* const* args, const uint32_t*, void* scratch) {
  RunPlan(*Argument<Plan*>(args, 3), args, scratch);
}

void RunUnplanned(const void* const* args, const uint32_t*, void* scratch) {
  Plan plan(*Argument<Device*>(args, 4), Argument<Problem>(args, 3));
  RunPlan(plan, args, scratch);
}

constexpr uint32_t kPlannedSizes[] = {sizeof(MatmulOperands), sizeof(void*), sizeof(size_t), sizeof(void*)};
constexpr uint32_t kUnplannedSizes[] = {sizeof(MatmulOperands), sizeof(void*), sizeof(size_t),
                                        sizeof(Problem), sizeof(void*)};
constexpr xpud_host_kernel_t kKernels[] = {{"cublaslt", RunPlanned, 4, kPlannedSizes},
                                           {"cublaslt_unplanned", RunUnplanned, 5, kUnplannedSizes}};
constexpr xpud_host_module_t kModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

// A launch of an element-wise kernel over stacks of `size` elements.
template <typename Arguments>
void LaunchElements(const Kernel* kernel, const Arguments& arguments, int64_t size, LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(std::min(kMostGroups, CeilDivide(size, Arguments::kLanes))),
               static_cast<uint32_t>(std::min(kMostGroupsY, arguments.batch)));
  launch.group_size = {Arguments::kLanes, 1, 1};
  launch.Push(arguments);
}

}  // namespace

CublasltMatmul::CublasltMatmul(KernelStore& store, const Api* api) {
  const Kernel* first = nullptr;
  const auto own = [&](std::string entry) {
    if (first != nullptr) return store.AddEntry(*first, std::move(entry));
    return first = store.Add({ModuleImage::Format::kPtx, std::string(gpu::ProductPtx()), nullptr},
                             std::move(entry));
  };
  for (const ops::DType type : kTypes) {
    const std::string name(ops::Info(type).name);
    types_[TypeIndex(type)] = {own("product_" + name), own("finish_" + name)};
  }
  for (int i = 0; i < 3; ++i) copies_[i] = own(absl::StrCat("copy_", 2 << i));
  if (api == nullptr) return;
  device_ = std::make_unique<Device>(*api);
  library_ = store.Add({ModuleImage::Format::kHost, "", &kModule}, "cublaslt");
  library_unplanned_ = store.AddEntry(*library_, "cublaslt_unplanned");
}

void CublasltMatmul::LaunchOwn(const MatmulCall& call, LaunchList& launches) const {
  using gpu::ProductArguments;
  const MatmulProblem& p = call.problem;
  const MatmulOperands& o = call.operands;
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
  launch.Reset(types_[TypeIndex(p.in)].product, static_cast<uint32_t>(tiles),
               static_cast<uint32_t>(std::min(kMostGroupsY, p.batch)));
  launch.group_size = {ProductArguments::kLanes, 1, 1};
  launch.Push(arguments);
}

void CublasltMatmul::LaunchFinish(const MatmulCall& call, const void* sum, LaunchList& launches) const {
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
  LaunchElements(types_[TypeIndex(p.out_type)].finish, arguments, p.m * p.n, launches);
}

// Copies factors of layouts that cuBLASLt does not take to workspace.
absl::Status CublasltMatmul::MakeMatrices(MatmulCall& call, KernelLibrary::Workspace workspace,
                                          LaunchList& launches) const {
  const MatmulProblem& p = call.problem;
  const int64_t element = ops::SizeOf(p.in);
  const auto copy = [&](const std::byte*& data, Strides& strides, int64_t rows,
                        int64_t columns) -> absl::Status {
    if (matmul::IsMatrix(strides, rows, columns)) return absl::OkStatus();
    const int64_t batch = strides.batch == 0 ? 1 : p.batch;
    ASSIGN_OR_RETURN(void* target, workspace(static_cast<size_t>(batch * rows * columns * element)));
    const gpu::CopyArguments arguments = {data, target, StridesOf(strides), batch, rows, columns};
    LaunchElements(copies_[std::countr_zero(static_cast<uint64_t>(element)) - 1], arguments, rows * columns,
                   launches);
    data = static_cast<const std::byte*>(target);
    strides = {strides.batch == 0 ? 0 : rows * columns, columns, 1};
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(copy(call.operands.a, call.problem.a, p.m, p.k));
  return copy(call.operands.b, call.problem.b, p.k, p.n);
}

cublaslt::Plan* CublasltMatmul::PlanFor(const Problem& problem) {
  const auto found = plans_.find(problem);
  if (found != plans_.end()) return found->second.get();
  if (plans_.size() == kMostPlans) return nullptr;
  return plans_.emplace(problem, std::make_unique<cublaslt::Plan>(*device_, problem)).first->second.get();
}

absl::Status CublasltMatmul::LaunchLibrary(const Problem& problem, const MatmulOperands& operands,
                                           KernelLibrary::Workspace workspace, LaunchList& launches) {
  cublaslt::Plan* const plan = PlanFor(problem);
  const size_t bytes =
      plan != nullptr ? plan->workspace_bytes() : cublaslt::Plan(*device_, problem).workspace_bytes();
  void* memory = nullptr;
  if (bytes != 0) {
    ASSIGN_OR_RETURN(memory, workspace(bytes));
  }
  Launch& launch = launches.Add();
  launch.Reset(plan != nullptr ? library_ : library_unplanned_, 1);
  launch.Push(operands);
  launch.Push(memory);
  launch.Push(bytes);
  if (plan != nullptr) {
    launch.Push(plan);
  } else {
    launch.Push(problem);
    launch.Push(device_.get());
  }
  return absl::OkStatus();
}

absl::StatusOr<Readiness> CublasltMatmul::Plan(const OpCall& call, KernelLibrary::Workspace workspace,
                                               LaunchList& launches) {
  ASSIGN_OR_RETURN(MatmulCall read, matmul::ReadMatmul(call));
  if (read.problem.Empty()) return Readiness::kReady;
  if (device_ == nullptr || !Multiplies(read.problem)) {
    LaunchOwn(read, launches);
    return Readiness::kReady;
  }
  RETURN_IF_ERROR(MakeMatrices(read, workspace, launches));
  Problem problem;
  problem.matmul = read.problem;
  const bool row = read.problem.plain && read.problem.RowBias();
  problem.raw = !Finishes(read.problem) || (row && RoundsBeforeBias(read));
  problem.bias = !problem.raw && row;
  MatmulOperands operands = read.operands;
  if (problem.raw) {
    // What the sum alone does not depend on: equal keys for equal sums.
    problem.matmul.c = problem.matmul.out = {};
    problem.matmul.has_c = false;
    problem.matmul.activation = ops::Activation::kNone;
    const size_t element = read.problem.in == ops::DType::kFloat64 ? 8 : 4;
    ASSIGN_OR_RETURN(
        void* sum,
        workspace(static_cast<size_t>(read.problem.batch * read.problem.m * read.problem.n) * element));
    operands.out = static_cast<std::byte*>(sum);
    operands.c = nullptr;
  }
  problem.a_alignment = AlignmentOf(operands.a);
  problem.b_alignment = AlignmentOf(operands.b);
  problem.out_alignment = AlignmentOf(operands.out);
  problem.c_alignment = operands.c != nullptr ? AlignmentOf(operands.c) : problem.out_alignment;
  RETURN_IF_ERROR(LaunchLibrary(problem, operands, workspace, launches));
  if (problem.raw) LaunchFinish(read, operands.out, launches);
  return Readiness::kReady;
}

}  // namespace cublaslt

std::unique_ptr<Planner> CreateCublasltMatmul(KernelStore& store) {
  const absl::StatusOr<const cublaslt::Api*> api = cublaslt::Api::Get();
  return std::make_unique<cublaslt::CublasltMatmul>(store, api.ok() ? *api : nullptr);
}

}  // namespace xpud::kernels
