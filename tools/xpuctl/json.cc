#include "tools/xpuctl/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"

namespace xpud::xpuctl {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void Append(const Message& message, std::string& out);

// Maps of the control plane are from text to text.
void AppendMap(const Message& message, const FieldDescriptor* field, std::string& out) {
  const Reflection& reflection = *message.GetReflection();
  std::map<std::string, std::string> entries;
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    const Message& entry = reflection.GetRepeatedMessage(message, field, i);
    const auto text = [&](const FieldDescriptor* part) {
      return entry.GetReflection()->GetString(entry, part);
    };
    entries[text(field->message_type()->map_key())] = text(field->message_type()->map_value());
  }
  out += '{';
  for (const auto& [name, value] : entries)
    absl::StrAppend(&out, out.back() == '{' ? "" : ",", JsonString(name), ":", JsonString(value));
  out += '}';
}

// Repeated fields of the control plane are messages, counts or numbers of devices.
void AppendRepeated(const Message& message, const FieldDescriptor* field, std::string& out) {
  const Reflection& reflection = *message.GetReflection();
  out += '[';
  for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
    if (i > 0) out += ',';
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      absl::StrAppend(&out, reflection.GetRepeatedUInt64(message, field, i));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      absl::StrAppend(&out, reflection.GetRepeatedUInt32(message, field, i));
    } else {
      Append(reflection.GetRepeatedMessage(message, field, i), out);
    }
  }
  out += ']';
}

// Writes the shortest number that is read back as the same value. Values that are not numbers in JSON (NaN,
// infinities) are strings, like protobuf's.
template <typename Real>
void AppendReal(Real value, std::string& out) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  std::array<char, 32> text;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
}

void AppendValue(const Message& message, const FieldDescriptor* field, std::string& out) {
  const Reflection& reflection = *message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      absl::StrAppend(&out, reflection.GetInt32(message, field));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      absl::StrAppend(&out, reflection.GetInt64(message, field));
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      absl::StrAppend(&out, reflection.GetUInt32(message, field));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      absl::StrAppend(&out, reflection.GetUInt64(message, field));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      AppendReal(reflection.GetDouble(message, field), out);
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      AppendReal(reflection.GetFloat(message, field), out);
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      out += reflection.GetBool(message, field) ? "true" : "false";
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      out += JsonString(reflection.GetEnum(message, field)->name());
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      out += JsonString(reflection.GetString(message, field));
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      Append(reflection.GetMessage(message, field), out);
      return;
  }
}

void Append(const Message& message, std::string& out) {
  const auto* type = message.GetDescriptor();
  out += '{';
  bool first = true;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->has_presence() && !message.GetReflection()->HasField(message, field)) continue;
    if (!first) out += ',';
    first = false;
    absl::StrAppend(&out, JsonString(field->name()), ":");
    if (field->is_map())
      AppendMap(message, field, out);
    else
      field->is_repeated() ? AppendRepeated(message, field, out) : AppendValue(message, field, out);
  }
  out += '}';
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    if (first.code == '"' || first.code == '\\') {
      out += '\\';
      out += first.bytes;
    } else if (first.printable) {
      out += first.bytes;
    } else {  // the remaining characters fit in 16 bits
      constexpr uint32_t kReplacement = 0xfffd;
      absl::StrAppend(&out, absl::StrFormat("\\u%04x", first.valid ? first.code : kReplacement));
    }
    text.remove_prefix(first.bytes.size());
  }
  return out + '"';
}

std::string JsonValue(const Message& message, const FieldDescriptor* field) {
  std::string out;
  AppendValue(message, field, out);
  return out;
}

std::string Document(std::string_view object) {
  const std::string_view rest = object.substr(1);
  return absl::StrCat("{\"schema\":\"", kSchema, "\"", rest == "}" ? "" : ",",
                      absl::string_view(rest.data(), rest.size()), "\n");
}

std::string ToJson(const Message& message) {
  std::string out;
  Append(message, out);
  return out;
}

}  // namespace xpud::xpuctl
