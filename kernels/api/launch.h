// Modules, kernels, and launches of them: what a planner gives and an executor runs. Nothing here knows Level
// Zero: a launch names a module image and an entry point, which daemon/executor loads once and keeps by
// `Kernel::index`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

// What an argument of a compiled kernel is. Pointers point to device memory.
enum class ArgType : uint8_t { kPointer, kI64, kF32, kF64 };

// A hash of the types of a kernel's arguments, in order. Two lists that differ in one type never collide.
using Signature = uint64_t;
inline constexpr Signature kNoSignature = 0, kNoArguments = 1;
constexpr Signature Extend(Signature signature, ArgType next) {
  return signature * 5 + 1 + static_cast<Signature>(next);
}

// One entry point of a module. Immutable; lives as long as the library, or until Options::forget.
struct Kernel {
  uint32_t index = 0;  // dense, from 0: the executor's key; another kernel's once this one is forgotten
  const ModuleImage* module = nullptr;
  std::string entry;
  Signature signature = kNoSignature;  // of what a compiled kernel takes; vendors' kernels have none
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
    signature_ = kNoArguments;
    overflowed_ = false;
  }
  // After Reset, where the counts follow from what was pushed.
  void SetGroups(uint32_t x, uint32_t y = 1, uint32_t z = 1) { groups_ = {x, y, z}; }
  // Drops the value and sets overflowed() where it has no room; KernelLibrary::Plan then fails.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void Push(const T& value) {
    static_assert(sizeof(T) <= kMaxArgumentBytes);
    const size_t at = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
    if (count_ == kMaxArguments || at + sizeof(T) > kMaxArgumentBytes) [[unlikely]] {
      overflowed_ = true;
      return;
    }
    std::memcpy(bytes_ + at, &value, sizeof(T));
    offsets_[count_] = static_cast<uint16_t>(at);
    arguments_[count_++] = bytes_ + at;
    used_ = at + sizeof(T);
  }
  const Kernel& kernel() const { return *kernel_; }
  const std::array<uint32_t, 3>& groups() const { return groups_; }
  Signature signature() const { return signature_; }
  bool overflowed() const { return overflowed_; }
  std::array<uint32_t, 3> group_size{1, 1, 1};
  const void* const* arguments() const { return arguments_; }
  size_t argument_count() const { return count_; }
  // The arguments' values, each aligned as its type is from a start aligned to 64 bytes, and where in there
  // each one is.
  std::span<const std::byte> argument_bytes() const { return {bytes_, used_}; }
  std::span<const uint16_t> argument_offsets() const { return {offsets_, count_}; }

 private:
  friend class ArgumentWriter;

  const Kernel* kernel_ = nullptr;
  std::array<uint32_t, 3> groups_{1, 1, 1};
  size_t count_ = 0;
  size_t used_ = 0;
  Signature signature_ = kNoArguments;
  bool overflowed_ = false;
  alignas(64) std::byte bytes_[kMaxArgumentBytes];
  const void* arguments_[kMaxArguments];
  uint16_t offsets_[kMaxArguments];
};

// Writes a compiled kernel's arguments, from the first one on: see PushArguments in compiler/arguments.h.
// Each takes 8 bytes. Its state is its own until Finish, so that a compiler keeps it in registers.
class ArgumentWriter {
 public:
  explicit ArgumentWriter(Launch& launch) : launch_(launch) {}

  template <typename T>
  [[gnu::always_inline]] void Push(ArgType type, T value) {
    static_assert(sizeof(T) <= kBytes && Launch::kMaxArguments * kBytes <= Launch::kMaxArgumentBytes);
    signature_ = Extend(signature_, type);
    if (count_ == Launch::kMaxArguments) [[unlikely]] {
      launch_.overflowed_ = true;
      return;
    }
    const size_t at = count_ * kBytes;
    uint64_t bytes = 0;
    std::memcpy(&bytes, &value, sizeof(T));
    std::memcpy(launch_.bytes_ + at, &bytes, kBytes);
    launch_.offsets_[count_] = static_cast<uint16_t>(at);
    launch_.arguments_[count_++] = launch_.bytes_ + at;
  }
  void Finish() {
    launch_.signature_ = signature_;
    launch_.count_ = count_;
    launch_.used_ = count_ * kBytes;
  }

 private:
  static constexpr size_t kBytes = 8;

  Launch& launch_;
  Signature signature_ = kNoArguments;
  size_t count_ = 0;
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
