// The kernels of one device by key. Their code comes from a KernelCompiler, which other devices may share. A
// hit takes a few nanoseconds, allocates nothing and takes no lock. At the limit, the kernels that were not
// used for longest are evicted; what others added lives as long as the cache. Of kernels that are made of
// what clients send, those that one tenant alone has used are at most half: beyond, its own are evicted
// first. One thread at a time: that of its library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/kernel_store.h"
#include "kernels/compiler/kernel_compiler.h"
#include "kernels/compiler/skeleton.h"

namespace xpud::kernels {

class KernelCache : public KernelStore {
 public:
  // `most`: kernels that Find keeps. `on_ready`, `assemble`, `forget`: see KernelLibrary::Options.
  KernelCache(std::shared_ptr<KernelCompiler> compiler, std::function<void()> on_ready,
              KernelCompiler::Assembler assemble, size_t most, ForgetKernels forget);
  ~KernelCache() override;
  // REQUIRES: called before the other functions. Returns ResourceExhausted if the system has no thread left.
  absl::Status Start() { return client_.Start(); }

  // Whom Find serves from now on; null: nobody. It lives until the next call, or Find is not called.
  void ServeFor(KernelOwner* owner) {
    owner_ = owner;
    tenant_ = owner != nullptr ? owner->tenant() : 0;
  }
  // The kernel, or nullptr while it is being compiled (started by this call if need be), or why it cannot be.
  absl::StatusOr<const Kernel*> Find(const Skeleton& skeleton, const KernelKey& key);
  template <typename Key, ops::Family family, template <typename> typename Arguments, uint8_t part>
  absl::StatusOr<const Kernel*> Find(const SkeletonOf<Key, family, Arguments, part>& skeleton,
                                     const Key& key) {
    return Find(skeleton, skeleton.Pack(key));
  }
  // Returns when everything that was asked for is settled and all background work is done.
  void WaitForCompiles();
  KernelCounters counters() const;
  Target target() const { return target_.target; }
  const CodeTarget& code_target() const { return target_; }
  void SetLimits(size_t most, uint64_t disk_bytes);

  using KernelStore::Add;
  const Kernel* Add(std::shared_ptr<const ModuleImage> image, std::string entry) override;
  const Kernel* AddEntry(const Kernel& sibling, std::string entry) override;
  void InBackground(std::function<void()> work) override;
  std::shared_ptr<const Code> Assemble(std::string_view ptx) override;

 private:
  struct Entry {
    KernelKey key;
    const Skeleton* skeleton = nullptr;
    uint64_t used = 0;               // when it was found last, as uses_ counts
    uint64_t tenant = 0;             // for whom it was made, if of what that one sent
    bool shared = false;             // another tenant has used it, too
    const Kernel* kernel = nullptr;  // &made, once the code is ready and was found
    std::shared_ptr<const Code> code;
    std::shared_ptr<const void> kept;  // see Skeleton::Keep
    Kernel made;
  };

  Entry* Lookup(const KernelKey& key) const;
  void Insert(Entry* entry);
  Entry& AddEntryFor(const Skeleton& skeleton, const KernelKey& key);
  absl::StatusOr<const Kernel*> Settle(Entry& entry);
  bool IsOfTenantAlone(const Entry& entry) const {
    return tenant_ != 0 && entry.tenant == tenant_ && !entry.shared;
  }
  // For a further entry; `of_client`: of what the tenant sent.
  void MakeRoom(bool of_client);
  // Gives up those that were not used for longest, so that `kept` are left of those for which `counts` is
  // true. What is being compiled stays.
  template <typename Counts>
  void GiveUp(size_t kept, const Counts& counts);
  void FillTable();
  // Forgets an entry without a kernel.
  void Erase(const Entry& entry);
  void ForgetLeaving();
  void Drop(Entry& entry);
  uint32_t TakeIndex();

  const CodeTarget target_;
  const ForgetKernels forget_;
  std::vector<Entry*> table_;  // open addressing, a power of two, at most half full
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Entry>> leaving_;  // given up, and still needed by work under way
  uint64_t memory_hits_ = 0, uses_ = 0;
  size_t most_;
  KernelOwner* owner_ = nullptr;
  uint64_t tenant_ = 0;                                      // owner_'s
  std::vector<std::shared_ptr<const ModuleImage>> modules_;  // that were added
  std::deque<Kernel> kernels_;                               // that were added
  uint32_t indices_ = 0;                                     // that were ever taken
  std::vector<uint32_t> free_indices_;                       // of them
  KernelCompiler::Client client_;                            // last: its thread ends before the rest
};

}  // namespace xpud::kernels
