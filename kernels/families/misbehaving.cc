#include "kernels/families/misbehaving.h"

#include <cstdint>

#include "kernels/families/skeleton_number.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

bool IsEndless(const KernelKey& packed) {
  KeyReader reader(packed);
  return reader.Take(1) != 0;
}

}  // namespace

KernelKey MisbehavingSkeleton::KeyOf(bool endless) {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kMisbehaving));
  writer.Put(endless, 1);
  return writer.key();
}

std::string MisbehavingSkeleton::NameOf(const KernelKey& key) const {
  return IsEndless(key) ? "test_endless" : "test_fault";
}

absl::Status MisbehavingSkeleton::Emit(const KernelKey& key, const std::string& name,
                                       Emitter& emitter) const {
  constexpr bool kVolatile = true;
  const ArgType address[] = {ArgType::kPointer};
  emitter.Begin(name, address);
  llvm::IRBuilder<>& ir = emitter.ir();
  if (!IsEndless(key)) {
    ir.CreateStore(ir.getInt8(1), emitter.Arg(0), kVolatile);
    return absl::OkStatus();
  }
  // Centuries of reads that no compiler may drop.
  emitter.Loop(emitter.I64(0), emitter.I64(INT64_MAX), emitter.I64(1),
               [&](llvm::Value*) { ir.CreateLoad(ir.getInt8Ty(), emitter.Arg(0), kVolatile); });
  return absl::OkStatus();
}

absl::StatusOr<Readiness> MisbehavingPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const bool endless = call.row->aten == "xpud::test_endless";
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, MisbehavingSkeleton::KeyOf(endless)));
  if (kernel == nullptr) return Readiness::kCompiling;
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t groups = call.attributes.empty() ? 1 : call.attributes[0].AsInteger();
  Launch& launch = launches.Add();
  launch.Reset(kernel, endless ? static_cast<uint32_t>(groups) : 1);
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  launch.Push(endless ? call.outputs[0].data : nullptr);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
