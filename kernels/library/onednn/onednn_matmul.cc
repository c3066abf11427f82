#include "kernels/library/onednn/onednn_matmul.h"
#include "kernels/library/planners.h"

#include <algorithm>

#include "proto/base/status_macros.h"

namespace xpud::kernels {

std::unique_ptr<Planner> CreateOnednnMatmul(KernelStore& store, int workers, bool elsewhere) {
  return std::make_unique<onednn::OnednnMatmul>(
      store, onednn::MatmulOptions{.workers = workers, .elsewhere = elsewhere});
}

namespace onednn {
namespace {

constexpr size_t kMaxPlans = 4096;
constexpr double kLaunchNanoseconds = 30e3;  // less work than this is one group
constexpr int64_t kGroupsPerWorker = 4;
constexpr int64_t kMinPackedBytes = 4096;

}  // namespace

OnednnMatmul::OnednnMatmul(KernelStore& store, const MatmulOptions& options)
    : workers_(std::max(1, options.workers)),
      elsewhere_(options.elsewhere),
      kernels_(store),
      packed_(options.packed_bytes) {}

// Packs weights for oneDNN's packed kernels, which require rows of a without gaps and one matrix b.
OnednnMatmul::Packed OnednnMatmul::FindPacked(const MatmulCall& call) {
  const MatmulProblem& p = call.problem;
  const bool known = !elsewhere_ && call.b_content != 0 && p.in != ops::DType::kFloat64;
  const bool fits = p.batch == 1 && p.n >= 16 && p.a.column == 1 && (p.a.row == p.k || p.m == 1);
  if (!known || !fits || p.k * p.n * static_cast<int64_t>(ops::SizeOf(p.in)) < kMinPackedBytes) return {};
  WeightSource source;
  source.data = call.operands.b;
  source.k = p.k;
  source.n = p.n;
  source.row = p.b.row;
  source.column = p.b.column;
  source.source = p.in;
  source.packed = MultipliesNatively(p.in) ? p.in : ops::DType::kFloat32;
  const PackedWeightCache::Found found =
      packed_.Find(source.key(), call.b_content, [&] { return std::make_unique<PackedMatrix>(source); });
  return {static_cast<PackedMatrix*>(found.weights), found.pack_first};
}

// Copies factors whose layout or type oneDNN cannot read to workspace.
absl::Status OnednnMatmul::MakeMultipliable(MatmulCall& call, bool packed, Workspace workspace,
                                            LaunchList& launches) {
  MatmulProblem& p = call.problem;
  if (p.in == ops::DType::kFloat64 || p.k == 0)
    return absl::OkStatus();  // our own product supports any layout
  if (!packed && p.FewRows()) return absl::OkStatus();
  const ops::DType from = p.in, to = MultipliesNatively(from) ? from : ops::DType::kFloat32;
  const auto copy = [&](const std::byte*& data, Strides& strides, int64_t rows,
                        int64_t columns) -> absl::Status {
    const int64_t batch = strides.batch == 0 ? 1 : p.batch;
    ASSIGN_OR_RETURN(void* target, workspace(static_cast<size_t>(batch * rows * columns) * ops::SizeOf(to)));
    kernels_.LaunchCopy({data, strides, batch, rows, columns, from, to, target}, launches);
    data = static_cast<const std::byte*>(target);
    strides = {strides.batch == 0 ? 0 : rows * columns, columns, 1};
    return absl::OkStatus();
  };
  if (from != to || !IsMatrix(p.a, p.m, p.k)) RETURN_IF_ERROR(copy(call.operands.a, p.a, p.m, p.k));
  p.in = to;
  if (packed) return absl::OkStatus();
  if (from != to || !IsMatrix(p.b, p.k, p.n)) RETURN_IF_ERROR(copy(call.operands.b, p.b, p.k, p.n));
  p.b_source = to;
  return absl::OkStatus();
}

const MatmulPlan* OnednnMatmul::PlanFor(const MatmulProblem& problem) {
  const auto found = plans_.find(problem);
  if (found != plans_.end()) return found->second.get();
  if (plans_.size() == kMaxPlans) return nullptr;
  return plans_.emplace(problem, std::make_unique<MatmulPlan>(problem)).first->second.get();
}

uint32_t OnednnMatmul::TilesPerGroup(const MatmulPlan& plan) const {
  const int64_t most = workers_ == 1 ? 1 : kGroupsPerWorker * workers_;
  if (plan.nanoseconds() > kLongNanoseconds) return 1;
  const int64_t groups =
      std::clamp<int64_t>(static_cast<int64_t>(plan.nanoseconds() / kLaunchNanoseconds), 1, most);
  return static_cast<uint32_t>((plan.tiles() + groups - 1) / groups);
}

absl::StatusOr<Readiness> OnednnMatmul::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(MatmulCall read, ReadMatmul(call));
  if (read.problem.Empty()) return Readiness::kReady;
  const Packed found = FindPacked(read);
  RETURN_IF_ERROR(MakeMultipliable(read, found.weights != nullptr, workspace, launches));
  read.problem.packed = found.weights != nullptr;
  if (found.pack_first) kernels_.LaunchPack(*found.weights, launches);
  const MatmulPlan* const plan = PlanFor(read.problem);
  if (plan != nullptr && !elsewhere_) {
    kernels_.LaunchProduct(*plan, read.operands, found.weights, TilesPerGroup(*plan), launches);
  } else if (plan != nullptr) {
    kernels_.LaunchUnplanned(*plan, read.operands, nullptr, TilesPerGroup(*plan), launches);
  } else {
    const MatmulPlan temporary(read.problem);
    kernels_.LaunchUnplanned(temporary, read.operands, found.weights, TilesPerGroup(temporary), launches);
  }
  return Readiness::kReady;
}

}  // namespace onednn
}  // namespace xpud::kernels
