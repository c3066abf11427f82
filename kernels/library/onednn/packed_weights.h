// Weights in the layout that oneDNN multiplies fastest, and the cache of them.
//
// Identity: a key (address and geometry) identifies weights, and Operand::content identifies their bytes.
// Content that was seen twice is packed, a part at each use. New content with the same key drops the packed
// weights, so changed weights are never served.
//
// Lifetime: the library's thread owns everything here. Each planned group that names a PackedWeights is
// counted when it is planned and when it has run. Dropped weights are freed once all of these have run, in
// any order of completion. Replays of recorded launches are not counted: plan launches for recording with
// content 0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace xpud::kernels::onednn {

// Kernels fill the memory in groups; afterwards it is immutable.
class PackedWeights {
 public:
  virtual ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  size_t bytes() const { return bytes_; }

  // REQUIRES: the library's thread, for what follows. The groups that no launch packs yet: the first of
  // `parts` equal parts of all, or fewer.
  struct Groups {
    uint32_t first = 0, count = 0;
  };
  Groups NextGroups(uint32_t parts) const;
  bool AreLast(const Groups& groups) const { return groups.first + groups.count == pack_groups_; }
  // A launch will pack these, which were next.
  void PlanPacking(const Groups& groups) {
    next_group_ = groups.first + groups.count;
    CountPlanned(groups.count);
  }
  // The number of groups that a launch of products will run.
  void CountPlanned(uint32_t groups) { planned_ += groups; }
  bool Idle() const { return planned_ <= run_.load(std::memory_order_acquire); }

  // Called by workers. Pack fills group `group` of all. CountRun is the last action of each group
  // that names this object.
  virtual void Pack(uint32_t group) = 0;
  void CountRun() { run_.fetch_add(1, std::memory_order_release); }

 protected:
  PackedWeights() = default;
  // Called once, by the constructor.
  void Allocate(size_t bytes, uint32_t pack_groups);
  std::byte* memory() const { return memory_.get(); }  // null if there was none
  uint32_t pack_groups() const { return pack_groups_; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };

  size_t bytes_ = 0;
  uint32_t pack_groups_ = 1;
  uint32_t next_group_ = 0;  // the first that no planned launch packs
  std::unique_ptr<std::byte, Free> memory_;
  uint64_t planned_ = 0;
  std::atomic<uint64_t> run_{0};
};

// A limit for packed weights, which double the memory of reused weights: 1 GiB, or an eighth of the machine's
// memory if that is less.
size_t DefaultPackedBytes();

class PackedWeightCache {
 public:
  explicit PackedWeightCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  struct Found {
    PackedWeights* weights = nullptr;  // nullptr: not packed yet, or not at all
    // Unless null, a launch shall pack `groups` of it: before the use of `weights`, if there are any.
    PackedWeights* packing = nullptr;
    PackedWeights::Groups groups = {};
  };
  // `parts`: in how many uses like this one all is packed.
  Found Find(std::string_view key, uint64_t content, uint32_t parts,
             absl::FunctionRef<std::unique_ptr<PackedWeights>()> make);

  size_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t content = 0;
    uint64_t last_use = 0;    // in lookups
    uint64_t not_before = 0;  // there was no room: try again after this lookup
    std::unique_ptr<PackedWeights> weights;
  };
  bool MakeRoom(size_t bytes);
  void Retire(Entry& entry);
  void FreeIdle();
  void Sweep();

  const size_t limit_bytes_;
  size_t bytes_ = 0;  // total, including dropped weights that are still in use
  uint64_t lookups_ = 0;
  absl::flat_hash_map<std::string, Entry> entries_;
  std::vector<std::unique_ptr<PackedWeights>> retired_;
};

}  // namespace xpud::kernels::onednn
