#include "kernels/library/onednn/matmul_kernels.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include "kernels/library/convolution/depthwise.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/onednn/convolution_kernels.h"
#include "kernels/library/plan_table.h"
#include "kernels/library/simd/simd.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::onednn {
namespace {

constexpr int64_t kCopyBytesPerGroup = 1 << 20;
constexpr size_t kMaxPlans = 4096;

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

void RunGroup(const MatmulPlan& plan, const void* const* args, const uint32_t group[3], void* scratch) {
  const MatmulOperands& operands = Argument<MatmulOperands>(args, 1);
  PackedMatrix* const packed = Argument<PackedMatrix*>(args, 2);
  const int64_t per_group = Argument<uint32_t>(args, 3);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, plan.tiles());
  for (int64_t tile = first; tile < last; ++tile) plan.RunTile(tile, operands, packed, scratch);
  if (packed != nullptr) packed->CountRun();
}

void RunProduct(const void* const* args, const uint32_t group[3], void* scratch) {
  RunGroup(*Argument<const MatmulPlan*>(args, 0), args, group, scratch);
}

void RunUnplanned(const void* const* args, const uint32_t group[3], void* scratch) {
  static auto& plans = *new PlanTable<MatmulProblem, const MatmulPlan>(kMaxPlans);
  const MatmulProblem& problem = Argument<MatmulProblem>(args, 0);
  const auto plan = plans.Find(problem, [&] { return std::make_shared<const MatmulPlan>(problem); });
  RunGroup(*plan, args, group, scratch);
}

void RunPack(const void* const* args, const uint32_t group[3], void*) {
  PackedWeights* const packed = Argument<PackedWeights*>(args, 0);
  packed->Pack(Argument<uint32_t>(args, 1) + group[0]);
  packed->CountRun();
}

// Group x is one of the layout; y is the batch index.
void RunPanels(const void* const* args, const uint32_t group[3], void*) {
  const MatmulKernels::Panels& panels = Argument<MatmulKernels::Panels>(args, 0);
  const PanelLayout layout = panels.layout();
  WeightSource source = panels.source;
  source.data += group[1] * panels.source_batch * static_cast<int64_t>(ops::SizeOf(source.source));
  layout.Pack(source, group[0], panels.target + group[1] * layout.bytes());
}

bool Transposes(const MatmulKernels::Copy& copy) { return copy.strides.row == 1 && copy.columns > 1; }

// Returns false if oneDNN refuses.
bool Reorder(const MatmulKernels::Copy& copy, const std::byte* source, int64_t rows, std::byte* target) {
  using dnnl::memory;
  const auto type = TypeOf(copy.target_type);
  const dnnl::stream& stream = ThreadStream();
  try {
    memory from(memory::desc({rows, copy.columns}, type, memory::dims{1, copy.strides.column}), CpuEngine(),
                const_cast<std::byte*>(source));
    memory to(memory::desc({rows, copy.columns}, type, memory::dims{copy.columns, 1}), CpuEngine(), target);
    dnnl::reorder(from, to).execute(stream, from, to);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

// Group x cuts the rows into runs of `rows_per_group`; y is the batch index.
void RunCopy(const void* const* args, const uint32_t group[3], void*) {
  const MatmulKernels::Copy& copy = Argument<MatmulKernels::Copy>(args, 0);
  const int64_t per_group = Argument<int64_t>(args, 1);
  const int64_t first = group[0] * per_group, rows = std::min(per_group, copy.rows - first);
  const std::byte* const source = static_cast<const std::byte*>(copy.source) +
                                  (group[1] * copy.strides.batch + first * copy.strides.row) *
                                      static_cast<int64_t>(ops::SizeOf(copy.source_type));
  std::byte* const target =
      static_cast<std::byte*>(copy.target) +
      (group[1] * copy.rows + first) * copy.columns * static_cast<int64_t>(ops::SizeOf(copy.target_type));
  const bool same = copy.source_type == copy.target_type && ops::SizeOf(copy.source_type) < sizeof(double);
  if (same && Transposes(copy) && Reorder(copy, source, rows, target)) return;
  simd::Best().gather({{source, copy.source_type, copy.strides.row, copy.strides.column},
                       rows,
                       copy.columns,
                       target,
                       copy.target_type});
}

constexpr uint32_t kProductSizes[] = {sizeof(void*), sizeof(MatmulOperands), sizeof(void*), sizeof(uint32_t)};
constexpr uint32_t kUnplannedSizes[] = {sizeof(MatmulProblem), sizeof(MatmulOperands), sizeof(void*),
                                        sizeof(uint32_t)};
constexpr uint32_t kPackSizes[] = {sizeof(void*), sizeof(uint32_t)};
constexpr uint32_t kPanelsSizes[] = {sizeof(MatmulKernels::Panels)};
constexpr uint32_t kCopySizes[] = {sizeof(MatmulKernels::Copy), sizeof(int64_t)};
constexpr xpud_host_kernel_t kKernels[] = {
    {"matmul", RunProduct, 4, kProductSizes},
    {"matmul_unplanned", RunUnplanned, 4, kUnplannedSizes},
    {"pack", RunPack, 2, kPackSizes},
    {"matmul_panels", RunPanels, 1, kPanelsSizes},
    {"matmul_copy", RunCopy, 2, kCopySizes},
    {kConvolutionEntries[0], RunConvolution, 4, kConvolutionSizes},
    {kConvolutionEntries[1], RunConvolutionAdd, 2, kConvolutionAddSizes},
    {kConvolutionEntries[2], RunConvolutionPack, 3, kConvolutionPackSizes},
    {kConvolutionEntries[3], RunConvolutionUnpack, 3, kConvolutionPackSizes},
    {convolution::kDepthwiseEntry, convolution::RunDepthwise, 2, convolution::kDepthwiseSizes},
};

}  // namespace

constinit const xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, std::size(kKernels), kKernels};

MatmulKernels::MatmulKernels(KernelStore& store) {
  product_ = store.Add({ModuleImage::Format::kHost, std::string(kOnednnModule)}, "matmul");
  unplanned_ = store.AddEntry(*product_, "matmul_unplanned");
  pack_ = store.AddEntry(*product_, "pack");
  panels_ = store.AddEntry(*product_, "matmul_panels");
  copy_ = store.AddEntry(*product_, "matmul_copy");
}

template <typename First>
void MatmulKernels::LaunchTiles(const Kernel* kernel, const First& first, const MatmulPlan& plan,
                                const MatmulOperands& operands, PackedMatrix* packed,
                                uint32_t tiles_per_group, LaunchList& launches) {
  const uint32_t groups = static_cast<uint32_t>((plan.tiles() + tiles_per_group - 1) / tiles_per_group);
  if (packed != nullptr) packed->CountPlanned(groups);
  Launch& launch = launches.Add();
  launch.Reset(kernel, groups);
  launch.Push(first);
  launch.Push(operands);
  launch.Push(packed);
  launch.Push(tiles_per_group);
}

void MatmulKernels::LaunchProduct(const MatmulPlan& plan, const MatmulOperands& operands,
                                  PackedMatrix* packed, uint32_t tiles_per_group,
                                  LaunchList& launches) const {
  LaunchTiles(product_, &plan, plan, operands, packed, tiles_per_group, launches);
}

void MatmulKernels::LaunchUnplanned(const MatmulPlan& plan, const MatmulOperands& operands,
                                    PackedMatrix* packed, uint32_t tiles_per_group,
                                    LaunchList& launches) const {
  LaunchTiles(unplanned_, plan.problem(), plan, operands, packed, tiles_per_group, launches);
}

void MatmulKernels::LaunchPack(PackedWeights& weights, const PackedWeights::Groups& groups,
                               LaunchList& launches) const {
  weights.PlanPacking(groups);
  Launch& launch = launches.Add();
  launch.Reset(pack_, groups.count);
  launch.Push(&weights);
  launch.Push(groups.first);
}

void MatmulKernels::LaunchPanels(const Panels& panels, LaunchList& launches) const {
  Launch& launch = launches.Add();
  launch.Reset(panels_, static_cast<uint32_t>(panels.layout().groups()), static_cast<uint32_t>(panels.batch));
  launch.Push(panels);
}

void MatmulKernels::LaunchCopy(const Copy& copy, LaunchList& launches) const {
  const int64_t row_bytes = std::max<int64_t>(1, copy.columns * ops::SizeOf(copy.target_type));
  const int64_t per_group = std::clamp<int64_t>(kCopyBytesPerGroup / row_bytes, 1, copy.rows);
  Launch& launch = launches.Add();
  launch.Reset(copy_, (copy.rows + per_group - 1) / per_group, copy.batch);
  launch.Push(copy);
  launch.Push(per_group);
}

}  // namespace xpud::kernels::onednn
