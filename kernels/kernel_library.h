// The kernel library of one device: turns a validated op into launches. The daemon's engine thread calls it;
// it owns the compiled kernels, the compiler's background thread and the disk cache. Nothing here knows Level
// Zero: a launch names a module image and an entry point, which daemon/executor loads once and keeps by
// `Kernel::index`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ops/op_table.h"

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

// A tensor in device memory, already checked against its buffer, or an immediate (data == nullptr, rank 0).
struct Operand {
  void* data = nullptr;
  ops::DType dtype = ops::DType::kFloat32;
  uint8_t rank = 0;
  bool present = true;     // false: an optional input that was left out
  bool immediate = false;  // value is in `number`; dtype says how it takes part
  ops::Number number;
  std::array<int64_t, ops::kMaxRank> sizes{};
  std::array<int64_t, ops::kMaxRank> strides{};  // in elements, outermost first; may be 0, never negative
  // Identifies what the bytes are: changes with every write to the buffer, is never reused, 0 when unknown.
  // Lets the library keep packed weights.
  uint64_t content = 0;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
};

// A validated op: shapes, types and bounds follow the row's family; no operand overlaps an output except
// exactly (in-place).
struct OpCall {
  const ops::Row* row = nullptr;
  ops::DType compute = ops::DType::kFloat32;  // maps and reductions: the promoted type
  std::span<const Operand> outputs;
  std::span<const Operand> inputs;  // always row->inputs of them; absent ones have present == false
  std::span<const ops::Number> attributes;
  // Device memory for an error found in index contents: the kernel stores (kernels never fault) a non-zero
  // code here. See `DeviceError`.
  uint64_t* error_word = nullptr;
};

// What kernels store in error_word: code in the low 8 bits, the offending value (truncated) above.
enum class DeviceError : uint8_t { kNone = 0, kIndexOutOfRange = 1 };

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

// Since the library was made. Our own PTX that is only assembled counts as compiled; kernels of vendors'
// libraries do not.
struct KernelCounters {
  uint64_t compiled = 0;
  uint64_t disk_hits = 0;    // compiled by an earlier process
  uint64_t memory_hits = 0;  // found ready, each time one was wanted
  uint64_t failed = 0;       // could not be compiled
  uint64_t compile_ns = 0;   // time spent compiling, failures included
};

enum class Readiness {
  kReady,
  kCompiling,  // something is being made in the background; plan the same call again after `on_ready`
};

class KernelLibrary {
 public:
  using Ask = std::function<absl::StatusOr<uint64_t>(const Launch& launch)>;
  using Forget = std::function<void(std::vector<const Kernel*>& kernels)>;

  struct Options {
    Target target = Target::kHost;
    std::string cache_directory;     // empty: no disk cache
    int workers = 1;                 // how many groups the device runs at once: sizes the slices
    std::function<void()> on_ready;  // called on the compiler's thread each time something became ready
    std::string processor = {};      // kNvptx: the least GPU that the code runs on, as "sm_90"; empty: sm_80
    // kNvptx: makes machine code (a cubin for `processor` itself) of PTX. Where given, modules are kNative
    // and it is they that are kept on disk, so that a warm start compiles nothing. Called on the compiler's
    // thread.
    std::function<absl::StatusOr<std::string>(const std::string& ptx)> assemble = nullptr;
    // kHost: launches run in another process of this binary, so their arguments hold no pointers of this one.
    // Weights are then not packed.
    bool elsewhere = false;
    // kNvptx: runs a HOST kernel, apart from any queue, in the process that has the device: with `launch`'s
    // arguments and, appended by the callee as the last one, the address of a uint64_t that the kernel fills
    // with its answer. Called on the compiler's thread, which the library's destructor waits for. Unavailable
    // means that it may be asked again. Null: launches run in this process, and their kernels find out.
    Ask ask = nullptr;
    // How many compiled kernels are kept; those that were not used for longest make room for others.
    size_t most_kernels = 4096;
    uint64_t cache_bytes = uint64_t{1} << 30;  // that the disk cache may take
    // Whoever launches gives up what it has of kernels that no further launch will name, and takes them out
    // of the list; those that work under way needs stay there, and are named again later. Called by Plan.
    // Null: nobody has anything of them.
    Forget forget = nullptr;
    bool test_kernels = false;  // whether kernels that misbehave are planned, see kernels/misbehaving
  };
  // Device memory that lives until the op is done, or ResourceExhausted. On GPUs at multiples of 256 bytes.
  using Workspace = absl::FunctionRef<absl::StatusOr<void*>(size_t bytes)>;

  static absl::StatusOr<std::unique_ptr<KernelLibrary>> Create(const Options& options);
  ~KernelLibrary();

  // Fills `launches` (cleared first) with what computes `call`; an op with nothing to do gives none. Engine
  // thread only; no allocation once the kernel is known. Errors: Unimplemented (the message names op and
  // dtypes), ResourceExhausted, Internal.
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches);

  // Waits until every compile that Plan began is done (tests, warm-up).
  void WaitForCompiles();

  // Engine thread only.
  KernelCounters counters() const;
  // As in Options, from now on: what is kept beyond them goes when the next kernel comes. Engine thread only.
  void SetLimits(size_t most_kernels, uint64_t cache_bytes);

 private:
  class Impl;
  explicit KernelLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace xpud::kernels
