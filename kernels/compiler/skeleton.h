// One kind of kernel: the meaning of a key, and the code for it. Immutable; called on the compile thread.
#pragma once

#include <cctype>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/compiler/arguments.h"
#include "kernels/compiler/emitter.h"
#include "kernels/compiler/kernel_key.h"

namespace xpud::kernels {

class Skeleton {
 public:
  virtual ~Skeleton() = default;
  // Returns a C identifier, for traces.
  virtual std::string NameOf(const KernelKey& key) const = 0;
  // Returns what the key denotes beyond its bits: the formula. Part of the disk cache's key.
  virtual std::string Describe(const KernelKey& key) const = 0;
  // Returns what names the code on disk, beside the compiler's own identity.
  virtual std::string IdentityOf(const KernelKey& key) const;
  // Returns the kernel as bytes for another process (KernelCompiler::Options::compile_elsewhere), if it is
  // made of what a client sent; else nothing.
  virtual std::string RequestOf(const KernelKey&) const { return {}; }
  // Returns what must live as long as a kernel of the key, or is asked for: null if a key says all.
  virtual std::shared_ptr<const void> Keep(const KernelKey&) const { return nullptr; }
  // Returns the types of the arguments of `key`'s kernel.
  virtual std::vector<ArgType> ArgumentsOf(const KernelKey& key) const = 0;
  // Opens kernel `name` and fills it. Does not close it.
  virtual absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const = 0;
};

inline std::string Skeleton::IdentityOf(const KernelKey& key) const {
  std::string text = absl::StrCat(NameOf(key), "|", Describe(key));
  for (const uint64_t word : key.words) absl::StrAppend(&text, "|", absl::Hex(word));
  return text;
}

// A skeleton of a family, with its key and its kernels' arguments. `part` distinguishes a family's skeletons.
template <typename Key, ops::Family family, template <typename> typename Arguments, uint8_t part = 0>
class SkeletonOf : public Skeleton {
 public:
  static KernelKey Pack(const Key& key) { return PackKey(kNumber, key); }

  virtual std::string Name(const Key& key) const = 0;
  virtual std::string_view Formula(const Key&) const { return {}; }
  // Fills the open kernel.
  virtual absl::Status EmitBody(const Key& key, const Arguments<Emitted>& arguments, Emitter& e) const = 0;

  std::string NameOf(const KernelKey& packed) const final { return Name(UnpackKey<Key>(packed)); }
  std::string Describe(const KernelKey& packed) const final {
    return std::string(Formula(UnpackKey<Key>(packed)));
  }
  std::vector<ArgType> ArgumentsOf(const KernelKey& packed) const final {
    return TypesOf<Arguments>(UnpackKey<Key>(packed));
  }
  absl::Status Emit(const KernelKey& packed, const std::string& name, Emitter& emitter) const final {
    const auto key = UnpackKey<Key>(packed);
    return EmitBody(key, emitter.Begin<Arguments>(name, key), emitter);
  }

 private:
  static_assert(part < 4 && ops::kNumFamilies <= 64);
  static constexpr uint8_t kNumber = static_cast<uint8_t>(family) * 4 + part;
};

// Returns `prefix` and the row's first ATen name as a C identifier.
inline std::string NameWith(std::string_view prefix, const ops::Row& row) {
  std::string name(prefix);
  for (const char c : row.aten.substr(0, row.aten.find('|')))
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

}  // namespace xpud::kernels
