// A session's own profile in the form in which its client gets it.
#pragma once

#include "daemon/trace/recorder.h"
#include "proto/transport/profile.h"

namespace xpud::trace {

transport::SessionProfile ForClient(const Profile& profile);

}  // namespace xpud::trace
