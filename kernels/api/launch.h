// Modules, kernels, and launches of them: the output of a planner and the input of an executor. Independent
// of Level Zero: a launch names a module image and an entry point, which daemon/executor loads once and keeps
// by `Kernel::index`.
#pragma once

#include <algorithm>
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

// The kind of device that a kernel is compiled for.
enum class Target : uint8_t {
  kHost,   // x86-64 ELF object, convention of proto/base/ze_ext.h
  kNvptx,  // PTX text
  kSpirv,  // SPIR-V 1.2
};

// A module in a form that the device accepts. Immutable; lives as long as its kernels.
struct ModuleImage {
  enum class Format : uint8_t { kNative, kHost, kPtx, kSpirv };
  Format format = Format::kNative;
  std::string bytes;  // for kHost, the name of a module: see kernels/library/host_modules.h
};

// The types of a compiled kernel's arguments. Pointers are device addresses.
enum class ArgType : uint8_t { kPointer, kI64, kF32, kF64 };

constexpr uint32_t BytesOf(ArgType type) { return type == ArgType::kF32 ? 4 : 8; }

// A hash of the types of a kernel's arguments, in order. Lists that differ in exactly one type never collide.
using Signature = uint64_t;
inline constexpr Signature kNoSignature = 0, kNoArguments = 1;
constexpr Signature Extend(Signature signature, ArgType next) {
  return signature * 5 + 1 + static_cast<Signature>(next);
}
constexpr Signature SignatureOf(std::span<const ArgType> types) {
  Signature signature = kNoArguments;
  for (const ArgType type : types) signature = Extend(signature, type);
  return signature;
}

// One entry point of a module. Immutable; lives as long as the library, or until Options::forget.
struct Kernel {
  uint32_t index = 0;  // dense, from 0; the executor's key. Reused once this kernel is forgotten
  const ModuleImage* module = nullptr;
  std::string entry;
  std::vector<ArgType> arguments{};    // of a compiled kernel
  Signature signature = kNoSignature;  // of a compiled kernel's arguments; vendors' kernels have none
};

// The threads of a group of a GPU's compiled kernels, and the most bytes of local memory that a group has.
inline constexpr uint32_t kGpuLanes = 256;
inline constexpr uint32_t kStaticLocalBytes = 48 << 10;

// The most groups that a device runs in one launch, along x, y and z.
using GroupLimits = std::array<uint32_t, 3>;
inline constexpr uint32_t kMaxLaunchGroups = UINT32_MAX - 1;
inline constexpr GroupLimits kAnyGroups = {kMaxLaunchGroups, kMaxLaunchGroups, kMaxLaunchGroups};

// One launch: entry point, group counts, and argument values, which it owns. Reused between commands, without
// allocation. Arguments are values and device addresses. With Options::elsewhere or run_host_kernel, no
// argument is a pointer of this process, so another process can run the launch from the bytes and offsets.
class Launch {
 public:
  static constexpr size_t kMaxArguments = 128;
  static constexpr size_t kMaxArgumentBytes = 1024;

  // More than kMaxLaunchGroups groups along an axis count as kMaxLaunchGroups + 1, which no device runs:
  // KernelLibrary::Plan then fails.
  void Reset(const Kernel* kernel, int64_t x, int64_t y = 1, int64_t z = 1) {
    kernel_ = kernel;
    SetGroups(x, y, z);
    count_ = 0;
    used_ = 0;
    signature_ = kNoArguments;
    overflowed_ = false;
  }
  // After Reset, if the counts depend on pushed values.
  void SetGroups(int64_t x, int64_t y = 1, int64_t z = 1) { groups_ = {CountOf(x), CountOf(y), CountOf(z)}; }
  // If there is no room, drops the value and sets overflowed(); KernelLibrary::Plan then fails.
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
  // Returns the arguments' values and the offset of each. Values are aligned by type; the start is aligned to
  // 64 bytes.
  std::span<const std::byte> argument_bytes() const { return {bytes_, used_}; }
  std::span<const uint16_t> argument_offsets() const { return {offsets_, count_}; }

 private:
  friend class ArgumentWriter;

  static uint32_t CountOf(int64_t groups) {
    return static_cast<uint32_t>(std::clamp<int64_t>(groups, 0, int64_t{kMaxLaunchGroups} + 1));
  }

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

// Writes a compiled kernel's arguments, beginning with the first: see PushArguments in compiler/arguments.h.
// Each takes 8 bytes. The state is local until Finish, so that the compiler keeps it in registers.
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

// The launches of one op, in order. Storage is reused between commands.
class LaunchList {
 public:
  void Clear() {
    size_ = 0;
    ideal_ns_ = 0;
  }
  Launch& Add() {
    if (size_ == launches_.size()) launches_.push_back(std::make_unique<Launch>());
    launches_[size_]->group_size = {1, 1, 1};
    return *launches_[size_++];
  }
  size_t size() const { return size_; }
  // How long they take in all by the op's cost and the device's peak rates, as far as somebody has said so.
  // The same call always has the same.
  uint64_t ideal_ns() const { return ideal_ns_; }
  void SetIdealNs(uint64_t ideal_ns) { ideal_ns_ = ideal_ns; }
  const Launch& operator[](size_t i) const { return *launches_[i]; }

 private:
  std::vector<std::unique_ptr<Launch>> launches_;
  size_t size_ = 0;
  uint64_t ideal_ns_ = 0;
};

}  // namespace xpud::kernels
