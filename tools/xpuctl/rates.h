// Rates between two samples of the daemon's counters. Pure functions of the control plane's messages.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "proto/control/xpud.pb.h"

namespace xpud::xpuctl {

struct DeviceRates {
  const v1::Device* device;  // of the later sample
  double busy = 0;           // part of the time in which commands ran, 0 to 1
  double commands = 0;       // completed, per second
};

struct SessionRates {
  const v1::Session* session;  // of the later sample
  double busy = 0;             // device time per time; above 1 on several devices
  double commands = 0;         // completed, per second
  double kernels = 0;          // launched, per second
  double uploaded = 0;         // bytes per second
  double downloaded = 0;
  double waiting = 0;  // part of the time in which commands waited for their turn, 0 to 1
};

struct TenantRates {
  const v1::TenantTotal* tenant;  // of the later sample
  double busy = 0;                // see SessionRates
  double commands = 0;
  double waiting = 0;  // summed over its sessions
};

struct Rates {
  double seconds = 0;                // between the samples
  std::optional<double> daemon_cpu;  // cores; unset if the daemon does not measure it
  std::vector<DeviceRates> devices;
  std::vector<TenantRates> tenants;    // busiest first
  std::vector<SessionRates> sessions;  // busiest first; a session opened in between counts from its start
};

// The result points into `later`, which must outlive it. Counters that went back (another daemon answered)
// count from zero.
Rates Between(const v1::GetStatusResponse& earlier, const v1::GetStatusResponse& later);

}  // namespace xpud::xpuctl
