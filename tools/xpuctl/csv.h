// Rows of values separated by commas, quoted as RFC 4180 says; lines end with a line feed. Names are
// printable, whatever the daemon sent. One thread.
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

  // Columns are the fields of `type` that are no messages, by name, after `time_ns`.
  static Csv Of(const google::protobuf::Descriptor* type);

  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // A row of Of(row's type); fields that are not there are left empty.
  void Add(uint64_t time_ns, const google::protobuf::Message& row);

  // Has each row begin with this.
  Csv& Prefix(const std::string& heading, const std::string& cell);
  std::string ToString(bool with_heading) const;

 private:
  std::vector<std::string> heading_;
  std::vector<std::vector<std::string>> rows_;
};

// A time and a list, as the control plane answers.
template <typename Rows>
Csv CsvOf(uint64_t time_ns, const Rows& rows) {
  Csv csv = Csv::Of(Rows::value_type::descriptor());
  for (const auto& row : rows) csv.Add(time_ns, row);
  return csv;
}

}  // namespace xpud::xpuctl
