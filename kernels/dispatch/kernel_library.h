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
#include "kernels/api/kernel_owner.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"

namespace xpud::kernels {

class KernelCompiler;

// Returns Internal, with the kernel's name, if a launch has too many arguments, or not those that its kernel
// was compiled for. Both are bugs of a planner. KernelLibrary::Plan calls it last.
absl::Status CheckLaunches(const LaunchList& launches, const GroupLimits& most_groups);

class KernelLibrary {
 public:
  struct Options {
    Target target = Target::kHost;
    // Compiles for the same target and processor, and assembles if `assemble` is given. Null: the library
    // creates its own.
    std::shared_ptr<KernelCompiler> compiler = nullptr;
    std::string cache_directory;  // for the library's own compiler; empty: no disk cache
    int workers = 1;              // groups that the device runs at once; work is cut to occupy them
    // Called when a kernel has become ready, on the compiler's thread or another thread of this library.
    std::function<void()> on_ready;
    std::string processor = {};  // kNvptx: the least GPU that the code runs on, as "sm_90"; empty: sm_80
    // What the device multiplies and adds in a second, at most, on float32 and on 16 bits; 0: not known.
    // Work that takes long by these is cut into several launches.
    double float_operations = 0, half_operations = 0;
    bool has_doubles = true;  // else kernels compute doubles with integers: slow, with the same results
    // kNvptx: turns PTX into machine code (a cubin for `processor`). If given, modules are kNative, and the
    // disk cache keeps machine code, so that a warm start compiles nothing. Called on a thread of this
    // library; the destructor waits for it.
    std::function<absl::StatusOr<std::string>(const std::string& ptx)> assemble = nullptr;
    // kHost: launches run later, or in another process of this program. Their arguments then hold no pointers
    // into this process, and weights are not packed.
    bool elsewhere = false;
    // kNvptx: runs a HOST kernel in the process that has the device, outside of all queues. The kernel gets
    // the launch's arguments and then the address of a uint64_t, in which it stores its answer. Called on the
    // same thread as `assemble`. Unavailable: ask again later. Null: launches run in this process, and their
    // kernels find the answer themselves.
    HostKernelRunner run_host_kernel = nullptr;
    size_t most_kernels = 4096;  // compiled kernels that are kept; the least recently used are dropped
    uint64_t cache_bytes = uint64_t{1} << 30;  // limit of the disk cache of the library's own compiler
    // Releases what the device holds of kernels that are dropped, and removes those from the list. Kernels
    // that unfinished work still needs stay in the list, and are passed again later. Called by Plan. Null:
    // the device holds nothing.
    ForgetKernels forget = nullptr;
    GroupLimits most_groups = kAnyGroups;  // limits of the device for one launch
    bool test_kernels = false;             // whether the kernels of families/misbehaving.h are served
  };
  static absl::StatusOr<std::unique_ptr<KernelLibrary>> Create(const Options& options);
  ~KernelLibrary();

  // Clears `launches`, and fills it with the launches that compute `call`; none if there is nothing to
  // compute. Allocates nothing once the kernel is known. Errors: Unimplemented (the message names op and
  // dtypes), ResourceExhausted, Internal. Aborted: a process that compiled was ended; plan again. `owner`: in
  // whose turn kernels are compiled that are made of what clients sent; null: nobody's.
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches,
                                 KernelOwner* owner = nullptr);

  // Starts to compile what a call of a loop kernel will need whose buffers are aligned as new ones are, in
  // `owner`'s turn. Waits for nothing. The call returns the error of what cannot be compiled.
  void Prepare(const ops::KernelOfCall& call, KernelOwner* owner = nullptr);

  // Waits until all kernels that Plan has requested are compiled. For tests and for warming up.
  void WaitForCompiles();

  KernelCounters counters() const;
  // New values of these options. Kernels beyond the limit are dropped when the next one is compiled. The
  // disk cache's limit holds for all libraries that share the compiler.
  void SetLimits(size_t most_kernels, uint64_t cache_bytes);

 private:
  class Impl;
  explicit KernelLibrary(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace xpud::kernels
