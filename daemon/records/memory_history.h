// How a device's memory changed: what each tenant had of it, and the host memory for what had left it. The
// newest samples are kept. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "daemon/memory/usage.h"
#include "daemon/tenant/tenant.h"

namespace xpud::records {

struct MemoryBytes {
  uint64_t on_device = 0, moved_out = 0, shared = 0, saved = 0;  // of a tenant, as in memory::TenantMemory
  uint64_t host = 0;  // of the device: memory::DeviceMemory::host_bytes

  bool operator==(const MemoryBytes&) const = default;
};

// What there is from `time_ns` until the next sample of the same tenant or device.
struct MemorySample {
  uint64_t time_ns = 0;
  std::shared_ptr<const std::string> tenant;  // Tenant::Text; null: the device itself
  MemoryBytes bytes;
};

class MemoryHistory {
 public:
  static constexpr size_t kMaxSamples = 16'384;

  // Adds a sample for each tenant whose memory has changed, and for the device. A tenant or device without a
  // sample has nothing; a tenant that is not in `usage` any more gets a last sample of zeros. What does not
  // change is sampled again from time to time, so that it is not among the samples that are dropped.
  void Add(uint64_t time_ns, const memory::DeviceMemory& usage);
  // Drops all samples. Their numbers are not used again.
  void Clear();

  uint64_t added() const { return first_ + samples_.size(); }  // those that were dropped included
  uint64_t first() const { return first_; }                    // the number of the oldest one
  // REQUIRES: first() <= number < added().
  const MemorySample& operator[](uint64_t number) const { return samples_[number - first_]; }

 private:
  // The last sample of a tenant, or of the device.
  struct Last {
    std::shared_ptr<const std::string> tenant;
    MemoryBytes bytes;
    uint64_t number = 0;
  };

  void Update(uint64_t time_ns, const MemoryBytes& bytes, Last& last);

  std::deque<MemorySample> samples_;
  uint64_t first_ = 0;
  Last device_;
  std::map<Tenant, Last> tenants_;
};

}  // namespace xpud::records
