// Profiles and flight records for the control plane. Thread-safe: it visits the lanes.
#pragma once

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "daemon/lane/lanes.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {

// What an ended session did last on a device: at most its `most` last commands, or all that are kept if that
// is 0. Thread-safe.
void FillFlight(const records::EndedSession& session, uint32_t device, uint64_t most, v1::Flight& out);

class RecordReader {
 public:
  // `viewer`: who sees and profiles only its own sessions; nullopt: operators, who see all.
  explicit RecordReader(lane::Lanes& lanes, std::optional<Tenant> viewer = std::nullopt)
      : lanes_(lanes),
        viewer_(std::move(viewer)),
        audience_(viewer_ ? records::Audience::kUser : records::Audience::kOperators) {}

  absl::Status Start(const v1::StartProfileRequest& request, v1::StartProfileResponse& out);
  absl::Status Stop(const v1::StopProfileRequest& request, v1::StopProfileResponse& out);
  void List(v1::ListProfilesResponse& out);
  absl::Status Read(const v1::ReadProfileRequest& request, v1::ReadProfileResponse& out);
  absl::Status Read(const v1::ReadMemoryHistoryRequest& request, v1::ReadMemoryHistoryResponse& out);
  absl::Status Read(const v1::ReadFlightRequest& request, v1::ReadFlightResponse& out);

 private:
  bool Sees(const Tenant& tenant) const { return !viewer_ || *viewer_ == tenant; }
  absl::Status CheckDevice(uint32_t device) const;
  absl::StatusOr<records::Selection> SelectionOf(const v1::ProfileSelection& wanted);
  // The recorder of a session that is open or has ended lately; null: the viewer knows of none.
  // REQUIRES: the lane's thread.
  const records::Recorder* FindRecorder(lane::Lane& lane, uint64_t session) const;
  template <typename Session>
  void AddProfile(const records::Recorder& recorder, const Session& session, uint64_t id, lane::Lane& lane,
                  v1::ListProfilesResponse& out) const;
  size_t StopOn(const records::Selection& selection);
  // Adds the session's flight on the lane's device, if it has one.
  void ReadFlight(lane::Lane& lane, const v1::ReadFlightRequest& request, v1::ReadFlightResponse& out);
  // Of a session that FindRecorder finds; all but its commands. REQUIRES: the lane's thread.
  void FillState(lane::Lane& lane, uint64_t session, v1::Flight& out) const;

  lane::Lanes& lanes_;
  const std::optional<Tenant> viewer_;
  const records::Audience audience_;
};

}  // namespace xpud::service
