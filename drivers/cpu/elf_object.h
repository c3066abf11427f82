// An x86-64 ELF relocatable object (ET_REL), loaded into this process: sections are mapped, relocated and
// then protected, so that nothing is both writable and executable. The bytes may be corrupt, since they come
// from a disk cache: every offset is checked, and unknown constructs are refused with a reason. Immutable
// after Load; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace xpud::drivers::cpu {

// A global definition.
struct ElfSymbol {
  std::string name;
  void* address;
  uint64_t size;
  bool is_function;
};

class ElfObject {
 public:
  // Returns null and a reason in `error` if the object is malformed, or uses what kernels must not: undefined
  // symbols, constructors, thread-local storage, sections both writable and executable.
  static std::unique_ptr<const ElfObject> Load(std::string_view bytes, std::string& error);
  ~ElfObject();
  ElfObject(const ElfObject&) = delete;
  ElfObject& operator=(const ElfObject&) = delete;

  const std::vector<ElfSymbol>& symbols() const { return symbols_; }
  // Returns null if there is no such symbol.
  const ElfSymbol* Find(std::string_view name) const;

 private:
  friend class ElfLoader;
  ElfObject() = default;

  void* image_ = nullptr;
  size_t image_bytes_ = 0;
  std::vector<ElfSymbol> symbols_;
};

}  // namespace xpud::drivers::cpu
