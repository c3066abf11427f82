// A protocol message as JSON for scripts: proto field names, numbers as numbers (protobuf's own mapping
// writes 64-bit ones as strings), and what was not measured left out.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace xpud::xpuctl {

std::string ToJson(const google::protobuf::Message& message);

// `text` as a JSON string, quotes included. What PrintableText would not keep is escaped: it may be shown on
// a terminal.
std::string JsonString(std::string_view text);

}  // namespace xpud::xpuctl
