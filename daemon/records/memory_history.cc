#include "daemon/records/memory_history.h"

#include <algorithm>
#include <iterator>

namespace xpud::records {

void MemoryHistory::Add(uint64_t time_ns, const memory::DeviceMemory& usage) {
  for (const auto& [tenant, memory] : usage.tenants) {
    const auto [last, is_new] = tenants_.try_emplace(tenant);
    if (is_new) last->second.tenant = std::make_shared<const std::string>(tenant.Text());
    Update(time_ns, {memory.on_device, memory.moved_out, memory.shared, memory.saved}, last->second);
  }
  for (auto each = tenants_.begin(); each != tenants_.end();) {
    const bool is_gone = !usage.tenants.contains(each->first);
    if (is_gone) Update(time_ns, {}, each->second);
    each = is_gone ? tenants_.erase(each) : std::next(each);
  }
  Update(time_ns, {.host = usage.host_bytes}, device_);
}

void MemoryHistory::Update(uint64_t time_ns, const MemoryBytes& bytes, Last& last) {
  // With very many tenants, what does not change must not push out what does.
  const uint64_t repeated_after = std::max<uint64_t>(kMaxSamples / 8, 4 * tenants_.size());
  const bool is_old = bytes != MemoryBytes() && last.number + repeated_after <= added();
  if (bytes == last.bytes && !is_old) return;
  last.bytes = bytes;
  last.number = added();
  samples_.push_back({time_ns, last.tenant, bytes});
  if (samples_.size() <= kMaxSamples) return;
  samples_.pop_front();
  ++first_;
}

void MemoryHistory::Clear() {
  first_ = added();
  samples_.clear();
  tenants_.clear();
  device_ = {};
}

}  // namespace xpud::records
