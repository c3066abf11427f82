// Comma-separated values, quoted as in RFC 4180, with line feeds. Names are made printable, whatever the
// daemon sent. Not thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>
#include <vector>

namespace xpud::xpuctl {

std::string CsvField(std::string_view text);

class Csv {
 public:
  explicit Csv(std::vector<std::string> heading) : heading_(std::move(heading)) {}

  // The columns are `time_ns` and the fields of `type` that are not messages.
  static Csv Of(const google::protobuf::Descriptor* type);

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Adds a row of Of(row's type). Absent fields are empty.
  void Add(uint64_t time_ns, const google::protobuf::Message& row);

  // Adds a first column with the same cell in each row.
  Csv& Prefix(const std::string& heading, const std::string& cell);
  std::string ToString(bool with_heading) const;

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
};

// A reply of the control plane that has a time and a list.
template <typename Rows>
Csv CsvOf(uint64_t time_ns, const Rows& rows) {
  Csv csv = Csv::Of(Rows::value_type::descriptor());
  for (const auto& row : rows) csv.Add(time_ns, row);
  return csv;
}

}  // namespace xpud::xpuctl
