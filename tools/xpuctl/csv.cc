#include "tools/xpuctl/csv.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "proto/base/text.h"
#include "tools/xpuctl/json.h"

namespace xpud::xpuctl {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

bool IsColumn(const FieldDescriptor* field) {
  return !field->is_repeated() && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

std::string Value(const Message& message, const FieldDescriptor* field) {
  if (field->has_presence() && !message.GetReflection()->HasField(message, field)) return "";
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    return message.GetReflection()->GetString(message, field);
  return JsonValue(message, field);
}

std::string Line(const std::vector<std::string>& cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != &cells[0]) line += ',';
    line += CsvField(cell);
  }
  return line + "\n";
}

}  // namespace

std::string CsvField(std::string_view text) {
  std::string printable = PrintableText(text);
  if (printable.find_first_of(",\"") == std::string::npos) return printable;
  std::string quoted = "\"";
  for (const char c : printable) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

Csv Csv::Of(const Descriptor* type) {
  std::vector<std::string> heading = {"time_ns"};
  for (int i = 0; i < type->field_count(); ++i) {
    if (IsColumn(type->field(i))) heading.push_back(type->field(i)->name());
  }
  return Csv(std::move(heading));
}

void Csv::Add(uint64_t time_ns, const Message& row) {
  std::vector<std::string> cells = {absl::StrCat(time_ns)};
  const Descriptor* type = row.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    if (IsColumn(type->field(i))) cells.push_back(Value(row, type->field(i)));
  }
  Add(std::move(cells));
}

Csv& Csv::Prefix(const std::string& heading, const std::string& cell) {
  heading_.insert(heading_.begin(), heading);
  for (std::vector<std::string>& row : rows_) row.insert(row.begin(), cell);
  return *this;
}

std::string Csv::ToString(bool with_heading) const {
  std::string text = with_heading ? Line(heading_) : "";
  for (const auto& row : rows_) text += Line(row);
  return text;
}

}  // namespace xpud::xpuctl
