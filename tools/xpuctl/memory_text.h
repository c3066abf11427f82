// What `memory` shows: a row for each tenant on each device, then a line for each device. Pure functions of
// the control plane's messages.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/host_list.h"

namespace xpud::xpuctl {

// Keeps these devices. Returns InvalidArgument if there is no such device.
absl::Status KeepDevices(const std::set<uint32_t>& devices, v1::ListMemoryResponse& list);

// The column for the device is shown if there are several, and in wide views.
std::string MemoryText(const v1::ListMemoryResponse& list, bool wide = false);
std::string HostsText(const HostList<v1::ListMemoryResponse>& answers, bool wide);

}  // namespace xpud::xpuctl
