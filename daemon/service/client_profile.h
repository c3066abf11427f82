// A session's own profile in the form in which its client gets it.
#pragma once

#include "daemon/records/recorder.h"
#include "proto/transport/profile.h"

namespace xpud::service {

transport::SessionProfile ForClient(const records::Profile& profile);

}  // namespace xpud::service
