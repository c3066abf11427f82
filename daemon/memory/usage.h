// What is known of a device's memory at one time, for operators. Values; bytes unless they say otherwise.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "daemon/tenant/tenant.h"
#include "proto/base/histogram.h"

namespace xpud::memory {

// Bytes that were moved each way since the daemon started, and in each second of the last one.
struct MovedBytes {
  uint64_t in = 0, out = 0;
  uint64_t in_per_s = 0, out_per_s = 0;
};

// What is counted of a tenant's memory, since the daemon started.
struct MoveCounters {
  uint64_t in = 0, out = 0;      // bytes that were moved each way
  uint64_t copied_at_write = 0;  // bytes of merged blocks
  Histogram stalls{};            // how long commands waited for memory that was moved out

  MoveCounters& operator+=(const MoveCounters& other) {
    in += other.in;
    out += other.out;
    copied_at_write += other.copied_at_write;
    stalls += other.stalls;
    return *this;
  }
  bool is_zero() const { return in == 0 && out == 0 && copied_at_write == 0 && stalls.sum_ns() == 0; }
};

struct TenantMemory {
  uint64_t holds = 0;            // in buffers, shared memory once
  uint64_t on_device = 0;        // chunks that are there, or are coming or going
  uint64_t moved_out = 0;        // chunks whose contents are in host memory
  uint64_t cached = 0;           // free in chunks that are on the device
  uint64_t shared = 0;           // memory that sessions share by reference
  uint64_t sharers = 0;          // the most buffers of sessions that name one such memory
  uint64_t saved = 0;            // what equal contents take only once
  uint64_t copied_at_write = 0;  // bytes, since the daemon started
  MovedBytes moved{};
  Histogram stalls{};  // how long commands waited for memory that was moved out
};

struct DeviceMemory {
  uint64_t device_bytes = 0;                // what the device has
  uint64_t on_device = 0;                   // chunks of all tenants
  uint64_t host_bytes = 0, host_limit = 0;  // host memory for what is moved out: used, allowed
  uint64_t file_bytes = 0;                  // beyond that, in files
  uint64_t turns = 0;                       // that tenants were given, since the daemon started
  uint64_t turn_ns = 0;                     // the length of the last one; 0: tenants take no turns now
  // Of the device's time, and read, to find equal contents, since the daemon started.
  uint64_t merging_ns = 0, merging_bytes = 0;
  std::map<Tenant, TenantMemory> tenants;
  std::map<std::string, MoveCounters> ended;  // of tenants without sessions, by their names
};

}  // namespace xpud::memory
