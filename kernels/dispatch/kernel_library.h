// The kernel library of one device: turns a validated op into launches. It owns the device's kernels; their
// code comes from a compiler that several libraries may share. One thread at a time may use a library;
// libraries that share a compiler may be used by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"

namespace xpud::kernels {

class KernelCompiler;

// Internal, naming the kernel, if a launch has more arguments than it holds, or other ones than its kernel
// was compiled for. Both are bugs of a planner. KernelLibrary::Plan ends with it.
absl::Status CheckLaunches(const LaunchList& launches, const GroupLimits& most_groups);

class KernelLibrary {
 public:
  struct Options {
    Target target = Target::kHost;
    // Of this target and processor, with an assembler if there is `assemble`. Null: the library has its own.
    std::shared_ptr<KernelCompiler> compiler = nullptr;
    std::string cache_directory;  // of its own compiler; empty: no disk cache
    int workers = 1;              // how many groups the device runs at once: sizes the slices
    // Called on the compiler's thread, or another thread of this library, each time something became ready.
    std::function<void()> on_ready;
    std::string processor = {};  // kNvptx: the least GPU that the code runs on, as "sm_90"; empty: sm_80
    bool has_doubles = true;     // else kernels compute doubles with integers: slow, with the same results
    // kNvptx: makes machine code (a cubin for `processor` itself) of PTX. Where given, modules are kNative
    // and it is they that are kept on disk, so that a warm start compiles nothing. Called on a thread of this
    // library, which its destructor waits for.
    std::function<absl::StatusOr<std::string>(const std::string& ptx)> assemble = nullptr;
    // kHost: launches run later, or in another process of this binary, so their arguments hold no pointers of
    // this one. Weights are then not packed.
    bool elsewhere = false;
    // kNvptx: runs a HOST kernel, apart from any queue, in the process that has the device: with `launch`'s
    // arguments and, appended by the callee as the last one, the address of a uint64_t that the kernel fills
    // with its answer. Called on that thread, too. Unavailable means that it may be asked again. Null:
    // launches run in this process, and their kernels find out.
    AskDevice ask = nullptr;
    // How many compiled kernels are kept; those that were not used for longest make room for others.
    size_t most_kernels = 4096;
    uint64_t cache_bytes = uint64_t{1} << 30;  // that the disk cache of its own compiler may take
    // Whoever launches gives up what it has of kernels that no further launch will name, and takes them out
    // of the list; those that work under way needs stay there, and are named again later. Called by Plan.
    // Null: nobody has anything of them.
    ForgetKernels forget = nullptr;
    GroupLimits most_groups = kAnyGroups;  // that the device runs in one launch
    bool test_kernels = false;  // whether kernels that misbehave are planned, see kernels/misbehaving
  };
  static absl::StatusOr<std::unique_ptr<KernelLibrary>> Create(const Options& options);
  ~KernelLibrary();

  // Fills `launches` (cleared first) with what computes `call`; an op with nothing to do gives none. No
  // allocation once the kernel is known. Errors: Unimplemented (the message names op and dtypes),
  // ResourceExhausted, Internal.
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches);

  // Waits until every compile that Plan began is done (tests, warm-up).
  void WaitForCompiles();

  KernelCounters counters() const;
  // As in Options, from now on: what is kept beyond them goes when the next kernel comes. The disk cache's
  // limit is that of all libraries of its compiler.
  void SetLimits(size_t most_kernels, uint64_t cache_bytes);

 private:
  class Impl;
  explicit KernelLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace xpud::kernels
