// Claims as messages of the control plane. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/tenant/claim.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

// Reads what an operator grants; fields of answers are ignored. Returns InvalidArgument as CheckClaim, for a
// daemon with so many devices.
absl::StatusOr<Claim> ReadClaim(const v1::Claim& message, size_t devices);
// The fields that ReadClaim reads.
v1::Claim MessageOf(const Claim& claim);

// Returns the claim with the fields of the request's mask changed. Returns InvalidArgument for a mask without
// or with unknown fields, and as ReadClaim.
absl::StatusOr<Claim> Changed(const Claim& claim, const v1::UpdateClaimRequest& request, size_t devices);
// The names of the fields in which two claims differ: "weight, labels".
std::vector<std::string> DifferingFields(const Claim& a, const Claim& b);
// The values of these fields, from what to what: "weight 100 to 50, time ..50% to ..30%".
std::string DescribeChange(const Claim& before, const Claim& after);

}  // namespace xpud::service
