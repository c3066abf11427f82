// A protocol message as JSON for scripts: proto field names, numbers as numbers (protobuf's own mapping
// writes 64-bit ones as strings), and what was not measured left out.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace xpud::xpuctl {

std::string ToJson(const google::protobuf::Message& message);

// A field that is not repeated, as ToJson writes it.
std::string JsonValue(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor* field);

// What `object` holds, after the version of the documents that xpuctl prints, and a line's end. A version
// only gains fields; one that took some away or gave them another meaning would be xpuctl/2.
inline constexpr char kSchema[] = "xpuctl/1";
std::string Document(std::string_view object);

// `text` as a JSON string, quotes included. What PrintableText would not keep is escaped: it may be shown on
// a terminal.
std::string JsonString(std::string_view text);

}  // namespace xpud::xpuctl
