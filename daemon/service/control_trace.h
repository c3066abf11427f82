// Profiles and flight records for the control plane. Thread-safe: it visits the lanes.
#pragma once

#include "absl/status/status.h"
#include "daemon/lane/lanes.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

// What an ended session did last on a device: at most its `most` last commands, or all that are kept if that
// is 0. Thread-safe.
void FillFlight(const trace::EndedSession& session, uint32_t device, uint64_t most, v1::Flight& out);

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
