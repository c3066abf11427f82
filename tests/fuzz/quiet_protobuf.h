// Keeps Protocol Buffers from printing a line for each message that it cannot parse.
#pragma once

#include <google/protobuf/stubs/logging.h>

namespace xpud::fuzz {

inline void QuietProtobuf() {
  static const bool quiet = (google::protobuf::SetLogHandler(nullptr), true);
  (void)quiet;
}

}  // namespace xpud::fuzz
