// Modules, kernels, and launches of them: what a planner gives and an executor runs. Nothing here knows Level
// Zero: a launch names a module image and an entry point, which daemon/executor loads once and keeps by
// `Kernel::index`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace xpud::kernels {

// What a kernel is compiled for.
enum class Target : uint8_t {
  kHost,   // x86-64 ELF object, convention of proto/base/ze_ext.h
  kNvptx,  // PTX text
  kSpirv,  // SPIR-V 1.2
};

// A module as the device takes it. Immutable; lives as long as its kernels.
struct ModuleImage {
  enum class Format : uint8_t { kNative, kHost, kPtx, kSpirv };
  Format format = Format::kNative;
  std::string bytes;  // kHost: the name of a module, see kernels/library/host_modules.h
};

// One entry point of a module. Immutable; lives as long as the library, or until Options::forget.
struct Kernel {
  uint32_t index = 0;  // dense, from 0: the executor's key; another kernel's once this one is forgotten
  const ModuleImage* module = nullptr;
  std::string entry;
};

// One launch: entry point, group counts, and argument values owned here. Reused between commands: no
// allocation. Arguments are values and device addresses; with Options::elsewhere or ask, none is a pointer of
// this process, so that bytes and offsets are all that another one needs.
class Launch {
 public:
  static constexpr size_t kMaxArguments = 128;
  static constexpr size_t kMaxArgumentBytes = 1024;

  void Reset(const Kernel* kernel, uint32_t x, uint32_t y = 1, uint32_t z = 1) {
    kernel_ = kernel;
    groups_ = {x, y, z};
    count_ = 0;
    used_ = 0;
  }
  // After Reset, where the counts follow from what was pushed.
  void SetGroups(uint32_t x, uint32_t y = 1, uint32_t z = 1) { groups_ = {x, y, z}; }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void Push(const T& value) {
    const size_t at = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (count_ == kMaxArguments || at + sizeof(T) > kMaxArgumentBytes) std::abort();
    std::memcpy(bytes_ + at, &value, sizeof(T));
    offsets_[count_] = static_cast<uint16_t>(at);
    arguments_[count_++] = bytes_ + at;
    used_ = at + sizeof(T);
  }
  const Kernel& kernel() const { return *kernel_; }
  const std::array<uint32_t, 3>& groups() const { return groups_; }
  std::array<uint32_t, 3> group_size{1, 1, 1};
  const void* const* arguments() const { return arguments_; }
  size_t argument_count() const { return count_; }
  // The arguments' values, each aligned as its type is from a start aligned to 64 bytes, and where in there
  // each one is.
  std::span<const std::byte> argument_bytes() const { return {bytes_, used_}; }
  std::span<const uint16_t> argument_offsets() const { return {offsets_, count_}; }

 private:
  const Kernel* kernel_ = nullptr;
  std::array<uint32_t, 3> groups_{1, 1, 1};
  size_t count_ = 0;
  size_t used_ = 0;
  alignas(64) std::byte bytes_[kMaxArgumentBytes];
  const void* arguments_[kMaxArguments];
  uint16_t offsets_[kMaxArguments];
};

// The launches of one op, in order. Storage is kept between commands.
class LaunchList {
 public:
  void Clear() { size_ = 0; }
  Launch& Add() {
    if (size_ == launches_.size()) launches_.push_back(std::make_unique<Launch>());
    launches_[size_]->group_size = {1, 1, 1};
    return *launches_[size_++];
  }
  size_t size() const { return size_; }
  const Launch& operator[](size_t i) const { return *launches_[i]; }

 private:
  std::vector<std::unique_ptr<Launch>> launches_;
  size_t size_ = 0;
};

}  // namespace xpud::kernels
