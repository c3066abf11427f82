#include "tools/xpuctl/table.h"

#include <algorithm>

#include "proto/base/text.h"

namespace xpud::xpuctl {

namespace {

// Counts characters of UTF-8; each is assumed to be one column wide.
size_t Columns(const std::string& cell) {
  return static_cast<size_t>(
      std::count_if(cell.begin(), cell.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_.push_back(!heading.empty() && heading[0] == '>');
    if (right_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::Add(std::vector<std::string> cells) {
  cells.resize(rows_[0].size());
  for (std::string& cell : cells) cell = PrintableText(cell);
  rows_.push_back(std::move(cells));
}

size_t Table::Width(size_t column) const {
  size_t width = 0;
  for (const auto& row : rows_) width = std::max(width, Columns(row[column]));
  return width;
}

std::string Table::ToString() const {
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(Width(column) - Columns(row[column]), ' ');
      if (column > 0) line += "  ";
      line += right_[column] ? padding + row[column] : row[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace xpud::xpuctl
