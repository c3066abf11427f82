// The skeleton of loop kernels. Its keys hold the number of a variant.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/compiler/skeleton.h"
#include "kernels/loops/variant.h"

namespace xpud::kernels {

class LoopSkeleton : public Skeleton {
 public:
  static KernelKey KeyOf(const LoopVariant& variant) {
    return {{kNumber | variant.number() << kSkeletonBits, 0, 0, 0}};
  }

  std::string NameOf(const KernelKey& key) const override { return VariantOf(key)->name(); }
  std::string Describe(const KernelKey& key) const override { return VariantOf(key)->identity(); }
  // Numbers differ from process to process.
  std::string IdentityOf(const KernelKey& key) const override { return "loop|" + Describe(key); }
  std::shared_ptr<const void> Keep(const KernelKey& key) const override { return VariantOf(key); }
  std::string RequestOf(const KernelKey& key) const override;
  std::vector<ArgType> ArgumentsOf(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;

 private:
  static constexpr uint64_t kNumber = static_cast<uint64_t>(ops::Family::kLoop) * 4;

  static std::shared_ptr<const LoopVariant> VariantOf(const KernelKey& key) {
    return LoopVariant::Find(key.words[0] >> kSkeletonBits);
  }
};

}  // namespace xpud::kernels
