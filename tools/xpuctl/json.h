// Converts protocol messages to JSON for scripts: proto field names, numbers as numbers (protobuf's own
// mapping writes 64-bit numbers as strings), and no field that was not measured.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace xpud::xpuctl {

std::string ToJson(const google::protobuf::Message& message);

// Writes one field that is not repeated, in the format of ToJson.
std::string JsonValue(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor* field);

// Adds the schema version to `object`, and a line feed. A version only gains fields; a change that removes
// fields or their meaning needs xpuctl/2.
inline constexpr char kSchema[] = "xpuctl/1";
std::string Document(std::string_view object);

// Returns `text` as a JSON string, with quotes. Escapes characters that PrintableText would not keep, so that
// it is safe on a terminal.
std::string JsonString(std::string_view text);

}  // namespace xpud::xpuctl
