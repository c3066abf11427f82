// Compiled kernels by key, and the thread that compiles them. Find and the planners run on the engine thread;
// compiles run on the cache's own thread. A hit takes a few nanoseconds and allocates nothing. Where there
// are as many kernels as may be, those that were not used for longest are given up; what others added lives
// as long as the cache.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/api/kernel_store.h"
#include "kernels/api/planner.h"
#include "kernels/compiler/backend.h"
#include "kernels/compiler/object_cache.h"
#include "kernels/compiler/skeleton.h"
#include "proto/base/mutex.h"

namespace xpud::kernels {

class KernelCache : public KernelStore {
 public:
  // Makes machine code of PTX; see KernelLibrary::Options.
  using Assembler = std::function<absl::StatusOr<std::string>(const std::string& ptx)>;

  // `most`: kernels that Find keeps. `forget`: see KernelLibrary::Options.
  KernelCache(CodeTarget target, std::unique_ptr<ObjectCache> disk, std::function<void()> on_ready,
              Assembler assemble, size_t most, ForgetKernels forget);
  ~KernelCache() override;

  // The kernel, or nullptr while it is being compiled (started by this call if need be), or why it cannot be.
  absl::StatusOr<const Kernel*> Find(const Skeleton& skeleton, const KernelKey& key);
  template <typename Key, ops::Family family, template <typename> typename Arguments, uint8_t part>
  absl::StatusOr<const Kernel*> Find(const SkeletonOf<Key, family, Arguments, part>& skeleton,
                                     const Key& key) {
    return Find(skeleton, skeleton.Pack(key));
  }
  void WaitForCompiles();
  KernelCounters counters() const;  // engine thread
  Target target() const { return target_.target; }

  const Kernel* Add(ModuleImage image, std::string entry) override;
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override;
  void InBackground(std::function<void()> work) override;
  void SetLimits(size_t most, uint64_t disk_bytes);
  absl::StatusOr<ModuleImage> Assemble(std::string_view ptx) override;

  // Compiles without a cache: what the compile thread does, for tests.
  static absl::StatusOr<std::string> Compile(const CodeTarget& target, const Skeleton& skeleton,
                                             const KernelKey& key);

 private:
  struct Entry {
    KernelKey key;
    const Skeleton* skeleton = nullptr;
    uint64_t used = 0;  // when it was found last, as uses_ counts
    std::atomic<const Kernel*> kernel{nullptr};
    std::atomic<const absl::Status*> failure{nullptr};
    std::unique_ptr<absl::Status> status;  // written before `failure`
    ModuleImage image;                     // these before `kernel`
    Kernel made;

    bool settled() const { return kernel.load() != nullptr || failure.load() != nullptr; }
  };

  Entry* Lookup(const KernelKey& key) const;
  void Insert(Entry* entry);
  Entry& AddEntryFor(const Skeleton& skeleton, const KernelKey& key);
  void MakeRoom();
  void ForgetLeaving();
  uint32_t TakeIndex() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string IdentityOf(const Entry& entry, const std::string& name) const;
  void Run();
  void Finish(Entry& entry);
  ModuleImage ImageOf(std::string code) const;
  absl::StatusOr<std::string> CompileAndAssemble(const Entry& entry) const;
  absl::StatusOr<std::string> LoadOrCompile(const Entry& entry, const std::string& name);
  absl::StatusOr<std::string> LoadOrMake(const std::string& identity,
                                         absl::FunctionRef<absl::StatusOr<std::string>()> make);

  const CodeTarget target_;
  const std::string identity_;  // of all that this cache compiles
  const std::unique_ptr<ObjectCache> disk_;
  const std::function<void()> on_ready_;
  const Assembler assemble_;
  const ForgetKernels forget_;

  // Engine thread only.
  std::vector<Entry*> table_;  // open addressing, a power of two, at most half full
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> leaving_;  // given up, and still needed by work under way
  uint64_t memory_hits_ = 0, uses_ = 0;
  size_t most_;

  // Written by the compile thread.
  std::atomic<uint64_t> compiled_{0}, disk_hits_{0}, failed_{0}, compile_ns_{0};

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<ModuleImage> modules_ ABSL_GUARDED_BY(mutex_);
  std::deque<Kernel> kernels_ ABSL_GUARDED_BY(mutex_);
  uint32_t indices_ ABSL_GUARDED_BY(mutex_) = 0;                // that were ever taken
  std::vector<uint32_t> free_indices_ ABSL_GUARDED_BY(mutex_);  // of them
  std::thread compiler_;
};

}  // namespace xpud::kernels
