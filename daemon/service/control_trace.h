// Profiles and flight records for the control plane. Thread-safe: it visits the lanes.
#pragma once

#include "absl/status/status.h"
#include "daemon/lane/lanes.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

class TraceReader {
 public:
  explicit TraceReader(lane::Lanes& lanes) : lanes_(lanes) {}

  absl::Status Start(const v1::StartProfileRequest& request, v1::StartProfileResponse& out);
  absl::Status Stop(const v1::StopProfileRequest& request, v1::StopProfileResponse& out);
  void List(v1::ListProfilesResponse& out);
  absl::Status Read(const v1::ReadProfileRequest& request, v1::ReadProfileResponse& out);
  absl::Status Read(const v1::ReadFlightRequest& request, v1::ReadFlightResponse& out);

 private:
  absl::StatusOr<trace::Selection> SelectionOf(const v1::ProfileSelection& wanted);

  lane::Lanes& lanes_;
};

}  // namespace xpud::service
