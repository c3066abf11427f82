// Formats numbers for people. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/config/byte_size.h"
#include "daemon/config/user.h"

namespace xpud::xpuctl {

std::string Bytes(double bytes);    // "0 B", "64.0 MiB"
std::string Count(double count);    // "950", "12.3k", "4.56M"
std::string Duration(uint64_t ns);  // "350 us", "2.1 s", "3m 12s", "5h 03m", "2d 4h"
uint64_t Whole(double number);      // without its fraction; 0 for what is no number of 63 bits
std::string Percent(double ratio);  // "97%"; below a tenth with one decimal, "0.4%"

// A tenant's name from a message with uid and tenant_name: "alice", "xpud-gateway/team-a".
template <typename Message>
std::string TenantName(const Message& message) {
  return UserName(message.uid()) + (message.has_tenant_name() ? "/" + message.tenant_name() : "");
}

}  // namespace xpud::xpuctl
