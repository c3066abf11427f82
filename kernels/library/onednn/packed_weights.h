// Weights in the layout that oneDNN multiplies fastest, and the cache of them.
//
// Identity: address and geometry identify weights, and Operand::content identifies their bytes. Content that
// was seen twice is packed. New content at the same place drops the packed weights, so changed weights are
// never served.
//
// Lifetime: the the library's thread owns everything here. Each planned group that names a PackedWeights is
// counted when it is planned and when it has run. Dropped weights are freed once all of these have run, in
// any order of completion. Replays of recorded launches are not counted: plan launches for recording with
// content 0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

#include "absl/container/flat_hash_map.h"
#include "kernels/library/matmul/matmul_problem.h"

namespace xpud::kernels::onednn {

// A matrix of weights to pack: b[k,n].
struct WeightSource {
  const std::byte* data = nullptr;
  int64_t k = 0, n = 0;
  int64_t row = 0, column = 0;
  ops::DType source = ops::DType::kFloat32;  // type in memory
  ops::DType packed = ops::DType::kFloat32;
  uint8_t unused[6] = {};

  bool operator==(const WeightSource& other) const { return std::memcmp(this, &other, sizeof(*this)) == 0; }
  template <typename H>
  friend H AbslHashValue(H state, const WeightSource& w) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&w), sizeof(w));
  }
};
static_assert(std::has_unique_object_representations_v<WeightSource>);

// Packed column panels of one matrix, side by side. Kernels fill them; afterwards they are immutable.
class PackedWeights {
 public:
  explicit PackedWeights(const WeightSource& source);
  ~PackedWeights();
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  size_t bytes() const { return bytes_; }
  dnnl::memory::format_tag tag() const { return tag_; }

  // REQUIRES: the the library's thread. The number of groups that a launch will run, for packing or for
  // products.
  uint32_t pack_groups() const { return pack_groups_; }
  void CountPlanned(uint32_t groups) { planned_ += groups; }
  bool Idle() const { return planned_ <= run_.load(std::memory_order_acquire); }

  // Called by workers. Pack fills group `group` of pack_groups(). CountRun is the last action of each group
  // that names this object.
  void Pack(uint32_t group);
  bool Ready() const { return unpacked_groups_.load(std::memory_order_acquire) == 0; }
  // Returns the packed columns from `column` on, which is a multiple of 64.
  const std::byte* Panel(int64_t column) const { return memory_.get() + column / width_ * panel_bytes_; }
  void CountRun() { run_.fetch_add(1, std::memory_order_release); }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  bool PackPanel(int64_t first_column, int64_t columns);

  const WeightSource source_;
  int64_t width_ = 0;  // columns of a panel: divides 64, or covers the matrix
  size_t panel_bytes_ = 0;
  size_t bytes_ = 0;
  uint32_t pack_groups_ = 1;
  dnnl::memory::format_tag tag_ = dnnl::memory::format_tag::undef;
  std::unique_ptr<std::byte, Free> memory_;
  uint64_t planned_ = 0;
  std::atomic<uint64_t> run_{0};
  std::atomic<uint32_t> unpacked_groups_;  // stays above 0 if packing failed
};

class PackedWeightCache {
 public:
  explicit PackedWeightCache(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  struct Found {
    PackedWeights* weights = nullptr;  // nullptr: multiply the unpacked weights
    bool pack_first = false;           // a launch that packs must precede the product
  };
  Found Find(const WeightSource& source, uint64_t content);

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
  absl::flat_hash_map<WeightSource, Entry> entries_;
  std::vector<std::unique_ptr<PackedWeights>> retired_;
};

}  // namespace xpud::kernels::onednn
