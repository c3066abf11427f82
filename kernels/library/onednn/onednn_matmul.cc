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
// Packing takes as long as a product of about 160 rows. So products of fewer rows than this share the work of
// packing their weight, whose uses are then still of about the same length.
constexpr int64_t kRowsWorthPacking = 1024;
constexpr int64_t kMaxPackingParts = 4;
constexpr int64_t kMaxPieceBytes = 64 << 20;  // of a factor, in workspace

}  // namespace

OnednnMatmul::OnednnMatmul(KernelStore& store, const MatmulOptions& options)
    : workers_(std::max(1, options.workers)),
      elsewhere_(options.elsewhere),
      kernels_(store),
      packed_(options.packed_bytes) {}

// Packs weights for oneDNN's packed kernels, which require rows of a without gaps and one matrix b.
PackedWeightCache::Found OnednnMatmul::FindPacked(const MatmulCall& call) {
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
  const int64_t parts = std::clamp<int64_t>(kRowsWorthPacking / p.m, 1, kMaxPackingParts);
  return packed_.Find(source.key(), call.b_content, static_cast<uint32_t>(parts),
                      [&] { return std::make_unique<PackedMatrix>(source); });
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

template <typename Use>
auto OnednnMatmul::WithPlan(const MatmulProblem& problem, Use&& use) {
  auto found = plans_.find(problem);
  if (found == plans_.end()) {
    if (plans_.size() == kMaxPlans) return use(MatmulPlan(problem), false);
    found = plans_.emplace(problem, std::make_unique<MatmulPlan>(problem)).first;
  }
  return use(*found->second, true);
}

uint32_t OnednnMatmul::TilesPerGroup(const MatmulPlan& plan) const {
  const int64_t most = workers_ == 1 ? 1 : kGroupsPerWorker * workers_;
  const int64_t groups =
      std::clamp<int64_t>(static_cast<int64_t>(plan.nanoseconds() / kLaunchNanoseconds), 1, most);
  const int64_t tiles = (plan.tiles() + groups - 1) / groups;
  const double tile =
      std::max(plan.TileNanoseconds(), plan.nanoseconds() / static_cast<double>(plan.tiles()));
  return static_cast<uint32_t>(
      std::clamp<int64_t>(static_cast<int64_t>(kMaxGroupNanoseconds / tile), 1, tiles));
}

void OnednnMatmul::LaunchProduct(const MatmulCall& call, PackedMatrix* weights, LaunchList& launches) {
  WithPlan(call.problem, [&](const MatmulPlan& plan, bool lives) {
    const uint32_t per_group = TilesPerGroup(plan);
    if (lives && !elsewhere_)
      return kernels_.LaunchProduct(plan, call.operands, weights, per_group, launches);
    kernels_.LaunchUnplanned(plan, call.operands, elsewhere_ ? nullptr : weights, per_group, launches);
  });
}

MatmulProblem OnednnMatmul::Pieces::ProblemOf(const MatmulProblem& whole, int64_t batch, int64_t row,
                                              int64_t column) const {
  MatmulProblem p = whole;
  p.batch = std::min(batches, whole.batch - batch);
  p.m = std::min(rows, whole.m - row);
  p.n = std::min(columns, whole.n - column);
  const PanelLayout panels = PanelLayout::Of(p.k, p.n, p.in);
  p.packed = p.panels = true;
  p.b = {static_cast<int64_t>(panels.bytes() / ops::SizeOf(p.in)), 1, panels.column_elements()};
  if (copies_a) p.a = {p.m * p.k, p.k, 1};
  return p;
}

// Returns nullopt if the product is short, or oneDNN cannot multiply panels.
std::optional<OnednnMatmul::Pieces> OnednnMatmul::PiecesOf(const MatmulProblem& p) {
  const bool wanted = WithPlan(p, [](const MatmulPlan& plan, bool) { return plan.WantsPanels(); });
  const PanelLayout panels = PanelLayout::Of(p.k, p.n, p.in);
  const auto panel_bytes = static_cast<int64_t>(panels.panel_bytes()),
             row_bytes = p.k * static_cast<int64_t>(ops::SizeOf(p.in));
  if (!wanted || panel_bytes > kMaxPieceBytes) return std::nullopt;
  Pieces pieces;
  pieces.copies_a = p.a.column != 1 || p.a.row != p.k;
  pieces.columns = std::min(p.n, kMaxPieceBytes / panel_bytes * panels.width);
  pieces.rows = pieces.copies_a ? std::min(p.m, kMaxPieceBytes / row_bytes) : p.m;
  if (pieces.columns == p.n && pieces.rows == p.m) {
    const int64_t bytes = std::max(panel_bytes * panels.panels(), pieces.copies_a ? p.m * row_bytes : 0);
    pieces.batches = std::clamp<int64_t>(kMaxPieceBytes / bytes, 1, p.batch);
  }
  // All pieces are like the first or the last one along each axis.
  for (const int64_t batch : {int64_t{0}, (p.batch - 1) / pieces.batches * pieces.batches})
    for (const int64_t row : {int64_t{0}, (p.m - 1) / pieces.rows * pieces.rows})
      for (const int64_t column : {int64_t{0}, (p.n - 1) / pieces.columns * pieces.columns})
        if (!WithPlan(pieces.ProblemOf(p, batch, row, column),
                      [](const MatmulPlan& plan, bool) { return plan.CreatePrimitives(); }))
          return std::nullopt;
  return pieces;
}

// oneDNN wants the rows of a without gaps, and b in panels.
absl::Status OnednnMatmul::PlanPieces(const MatmulCall& call, const Pieces& pieces, Workspace workspace,
                                      LaunchList& launches) {
  const MatmulProblem& p = call.problem;
  const MatmulProblem largest = pieces.ProblemOf(p, 0, 0, 0);
  const size_t element = ops::SizeOf(p.in);
  void* a = nullptr;
  if (pieces.copies_a) {
    ASSIGN_OR_RETURN(a, workspace(static_cast<size_t>(largest.batch * largest.a.batch) * element));
  }
  ASSIGN_OR_RETURN(void* const b, workspace(static_cast<size_t>(largest.batch * largest.b.batch) * element));
  for (int64_t batch = 0; batch < p.batch; batch += pieces.batches)
    for (int64_t row = 0; row < p.m; row += pieces.rows)
      for (int64_t column = 0; column < p.n; column += pieces.columns) {
        MatmulCall piece;
        piece.problem = pieces.ProblemOf(p, batch, row, column);
        piece.operands = p.At(call.operands, batch, row, column);
        const MatmulProblem& q = piece.problem;
        if (pieces.copies_a) {
          if (column == 0)
            kernels_.LaunchCopy({piece.operands.a, p.a, q.batch, q.m, q.k, q.in, q.in, a}, launches);
          piece.operands.a = static_cast<std::byte*>(a);
        }
        const WeightSource source = {piece.operands.b, q.k, q.n, p.b.row, p.b.column, q.in, q.in};
        kernels_.LaunchPanels({source, q.batch, p.b.batch, static_cast<std::byte*>(b)}, launches);
        piece.operands.b = static_cast<std::byte*>(b);
        LaunchProduct(piece, nullptr, launches);
      }
  return absl::OkStatus();
}

absl::StatusOr<Readiness> OnednnMatmul::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(MatmulCall read, ReadMatmul(call));
  if (read.problem.Empty()) return Readiness::kReady;
  const PackedWeightCache::Found found = FindPacked(read);
  auto* const weights = static_cast<PackedMatrix*>(found.weights);
  RETURN_IF_ERROR(MakeMultipliable(read, weights != nullptr, workspace, launches));
  read.problem.packed = weights != nullptr;
  const auto pieces = weights == nullptr ? PiecesOf(read.problem) : std::nullopt;
  if (pieces) RETURN_IF_ERROR(PlanPieces(read, *pieces, workspace, launches));
  // From here on nothing fails: what is planned to be packed will be.
  if (found.packing != nullptr) kernels_.LaunchPack(*found.packing, found.groups, launches);
  if (!pieces) LaunchProduct(read, weights, launches);
  return Readiness::kReady;
}

}  // namespace onednn
}  // namespace xpud::kernels
