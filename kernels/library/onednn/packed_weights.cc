#include "kernels/library/onednn/packed_weights.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"

namespace xpud::kernels::onednn {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// In lookups. Weights unused for kIdle are dropped. To make room for new ones, weights are dropped only if
// unused for kWarm, so that a model larger than the limit keeps a part of its weights packed instead of
// packing them in turn.
constexpr uint64_t kIdle = 1 << 18;
constexpr uint64_t kWarm = 1 << 14;
constexpr uint64_t kSweepEvery = 1 << 13;
constexpr size_t kPackBytesPerGroup = 1 << 20;

// Column panels of 16 to 64; within them, rows in blocks of 16 (pairs of rows together for 16-bit types).
Tag PanelTag(int64_t width, ops::DType type) {
  const bool pairs = ops::SizeOf(type) == 2;
  switch (width) {
    case 16:
      return pairs ? Tag::BA16a16b2a : Tag::BA16a16b;
    case 32:
      return pairs ? Tag::BA16a32b2a : Tag::BA16a32b;
    case 48:
      return pairs ? Tag::BA16a48b2a : Tag::BA16a48b;
    default:
      return pairs ? Tag::BA16a64b2a : Tag::BA16a64b;
  }
}

}  // namespace

void PackedWeights::Free::operator()(std::byte* p) const { std::free(p); }

PackedWeights::PackedWeights(const WeightSource& source) : source_(source) {
  width_ = std::min<int64_t>(64, (source.n + 15) / 16 * 16);
  tag_ = PanelTag(width_, source.packed);
  panel_bytes_ = memory::desc({source.k, width_}, TypeOf(source.packed), tag_).get_size();
  const int64_t panels = (source.n + width_ - 1) / width_;
  bytes_ = panel_bytes_ * panels;
  pack_groups_ = static_cast<uint32_t>(std::clamp<int64_t>(bytes_ / kPackBytesPerGroup, 1, panels));
  unpacked_groups_ = pack_groups_;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (bytes_ + 4095) / 4096 * 4096)));
}

PackedWeights::~PackedWeights() = default;

bool PackedWeights::PackPanel(int64_t first_column, int64_t columns) {
  const simd::MatrixView view{source_.data + first_column * source_.column * ops::SizeOf(source_.source),
                              source_.source, source_.row, source_.column};
  const bool as_is =
      source_.source == source_.packed && IsMatrix({0, source_.row, source_.column}, source_.k, columns);
  try {
    memory::desc from({source_.k, columns}, TypeOf(source_.packed), memory::dims{columns, 1});
    const void* data = view.data;
    if (as_is) {
      from = memory::desc({source_.k, columns}, TypeOf(source_.packed),
                          memory::dims{source_.row, source_.column});
    } else {
      std::byte* const dense = ThreadMemory(source_.k * columns * ops::SizeOf(source_.packed));
      simd::Best().gather({view, source_.k, columns, dense, source_.packed});
      data = dense;
    }
    const memory::desc to({source_.k, columns}, TypeOf(source_.packed), tag_);
    memory in(from, CpuEngine(), const_cast<void*>(data));
    memory out(to, CpuEngine(), memory_.get() + first_column / width_ * panel_bytes_);
    const dnnl::stream& stream = ThreadStream();
    dnnl::reorder(in, out).execute(stream, in, out);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

void PackedWeights::Pack(uint32_t group) {
  ThreadStream();
  if (memory_ == nullptr) return;
  const int64_t panels = (source_.n + width_ - 1) / width_;
  const int64_t first = panels * group / pack_groups_, last = panels * (group + 1) / pack_groups_;
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * width_;
    if (!PackPanel(column, std::min(width_, source_.n - column))) return;
  }
  unpacked_groups_.fetch_sub(1, std::memory_order_acq_rel);
}

PackedWeightCache::Found PackedWeightCache::Find(const WeightSource& source, uint64_t content) {
  if (++lookups_ % kSweepEvery == 0) Sweep();
  Entry& entry = entries_[source];
  const bool seen = entry.content == content;
  entry.last_use = lookups_;
  if (!seen) {
    Retire(entry);
    entry.content = content;
    entry.not_before = 0;
    return {};
  }
  if (entry.weights != nullptr) return {entry.weights.get(), false};
  if (entry.not_before > lookups_) return {};
  auto weights = std::make_unique<PackedWeights>(source);
  if (!MakeRoom(weights->bytes())) {
    entries_[source].not_before = lookups_ + kWarm;
    return {};
  }
  bytes_ += weights->bytes();
  entry.weights = std::move(weights);
  return {entry.weights.get(), true};
}

bool PackedWeightCache::MakeRoom(size_t bytes) {
  FreeIdle();
  while (bytes_ + bytes > limit_bytes_) {
    Entry* oldest = nullptr;
    for (auto& [source, entry] : entries_)
      if (entry.weights != nullptr && (oldest == nullptr || entry.last_use < oldest->last_use))
        oldest = &entry;
    if (oldest == nullptr || oldest->last_use + kWarm > lookups_) return false;
    Retire(*oldest);
    const size_t before = bytes_;
    FreeIdle();
    if (bytes_ == before) return false;  // still in use: try again later
  }
  return true;
}

void PackedWeightCache::Retire(Entry& entry) {
  if (entry.weights != nullptr) retired_.push_back(std::move(entry.weights));
}

void PackedWeightCache::FreeIdle() {
  std::erase_if(retired_, [&](const std::unique_ptr<PackedWeights>& weights) {
    if (!weights->Idle()) return false;
    bytes_ -= weights->bytes();
    return true;
  });
}

void PackedWeightCache::Sweep() {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const uint64_t age = lookups_ - it->second.last_use;
    if (age > kIdle || (age > kSweepEvery && it->second.weights == nullptr)) {
      Retire(it->second);
      entries_.erase(it++);
    } else {
      ++it;
    }
  }
  FreeIdle();
}

}  // namespace xpud::kernels::onednn
