#include "proto/base/daemon_gone.h"

#include "absl/strings/cord.h"

namespace xpud {
namespace {

constexpr char kPayload[] = "xpud/daemon-gone";

}  // namespace

absl::Status DaemonGone(absl::string_view message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kPayload, absl::Cord());
  return status;
}

bool IsDaemonGone(const absl::Status& status) { return status.GetPayload(kPayload).has_value(); }

}  // namespace xpud
