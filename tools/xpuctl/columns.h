// Views as lists of columns: each has a heading and a function that fills a row's cell. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/xpuctl/host_list.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {

template <typename Row>
struct Column {
  const char* heading;  // see Table
  std::string (*cell)(const Row& row);
  bool wide = false;  // shown in wide views only
};

// Builds a table of these columns. With several hosts, the first column is the host.
template <typename Row>
class RowTable {
 public:
  RowTable(std::span<const Column<Row>> columns, bool wide, bool hosts = false)
      : columns_(columns), wide_(wide), hosts_(hosts), table_(Headings()) {}

  void Add(const Row& row, const std::string& host = "") {
    std::vector<std::string> cells;
    if (hosts_) cells.push_back(host);
    for (const Column<Row>& column : columns_) {
      if (wide_ || !column.wide) cells.push_back(column.cell(row));
    }
    table_.Add(std::move(cells));
  }
  std::string ToString() const { return table_.ToString(); }
  const Table& table() const { return table_; }

 private:
  std::vector<std::string> Headings() const {
    std::vector<std::string> headings;
    if (hosts_) headings.emplace_back("HOST");
    for (const Column<Row>& column : columns_) {
      if (wide_ || !column.wide) headings.emplace_back(column.heading);
    }
    return headings;
  }

  const std::span<const Column<Row>> columns_;
  const bool wide_, hosts_;
  Table table_;
};

template <typename Row, typename Rows>
std::string TableOf(std::span<const Column<Row>> columns, const Rows& rows, bool wide) {
  RowTable<Row> table(columns, wide);
  for (const Row& row : rows) table.Add(row);
  return table.ToString();
}

// Builds a table of several hosts' answers; `rows` returns the rows of one answer.
template <typename Row, typename Response, typename Rows>
std::string TableOf(std::span<const Column<Row>> columns, const HostList<Response>& answers, Rows rows,
                    bool wide) {
  RowTable<Row> table(columns, wide, true);
  for (const auto& [host, response] : answers) {
    for (const Row& row : std::invoke(rows, *response)) table.Add(row, host);
  }
  return table.ToString();
}

inline std::string SizeCell(uint64_t bytes) { return Bytes(static_cast<double>(bytes)); }
inline std::string CountCell(uint64_t count) { return Count(static_cast<double>(count)); }

}  // namespace xpud::xpuctl
