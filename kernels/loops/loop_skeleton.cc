#include "kernels/loops/loop_skeleton.h"

#include "kernels/loops/arguments.h"
#include "kernels/loops/emission.h"

namespace xpud::kernels {

std::string LoopSkeleton::RequestOf(const KernelKey& key) const { return VariantOf(key)->identity(); }

std::vector<ArgType> LoopSkeleton::ArgumentsOf(const KernelKey& key) const {
  return TypesOf<LoopArguments>(*VariantOf(key));
}

absl::Status LoopSkeleton::Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const {
  const std::shared_ptr<const LoopVariant> variant = VariantOf(key);
  const auto arguments = emitter.Begin<LoopArguments>(name, *variant);
  return LoopEmission(*variant, arguments, emitter).Run();
}

}  // namespace xpud::kernels
