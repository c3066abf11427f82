// What the daemon makes of a claim that the agent has made of untrusted bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/service/claim_messages.h"
#include "proto/base/check.h"
#include "proto/control/xpud.pb.h"

namespace xpud::fuzz {

// Ends the program unless a daemon with so many devices takes the claim as it is. By default it has every
// device that a claim can name, for agents that know no inventory.
inline void CheckTaken(v1::Claim claim, size_t devices = size_t{UINT32_MAX} + 1) {
  XPUD_CHECK(claim.weight() != 0);                    // the daemon's default is no part
  if (claim.devices().empty()) claim.add_devices(0);  // all of them; they differ in nothing
  const auto taken = service::ReadClaim(claim, devices);
  XPUD_CHECK(taken.ok());
  XPUD_CHECK(taken->time.weight == claim.weight() && taken->time.least == claim.time_least());
  XPUD_CHECK(taken->labels.size() == claim.labels().size());
}

}  // namespace xpud::fuzz
