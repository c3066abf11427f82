// Views as lists of columns: what each is headed, and how a row fills it. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {

template <typename Row>
struct Column {
  const char* heading;  // as Table's
  std::string (*cell)(const Row& row);
  bool wide = false;  // shown by wide views only
};

template <typename Row, typename Rows>
std::string TableOf(std::span<const Column<Row>> columns, const Rows& rows, bool wide) {
  std::vector<std::string> headings;
  for (const Column<Row>& column : columns) {
    if (wide || !column.wide) headings.emplace_back(column.heading);
  }
  Table table(std::move(headings));
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Column<Row>& column : columns) {
      if (wide || !column.wide) cells.push_back(column.cell(row));
    }
    table.Add(std::move(cells));
  }
  return table.ToString();
}

inline std::string SizeCell(uint64_t bytes) { return Bytes(static_cast<double>(bytes)); }
inline std::string CountCell(uint64_t count) { return Count(static_cast<double>(count)); }

}  // namespace xpud::xpuctl
