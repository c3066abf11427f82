// Text in columns: a heading, and rows as wide as they need. Not thread-safe.
#pragma once

#include <string>
#include <vector>

namespace xpud::xpuctl {

class Table {
 public:
  // Columns are right-aligned when their heading starts with '>' (numbers), which is not printed.
  explicit Table(std::vector<std::string> headings);

  // Adds a row; missing cells are empty. Cells are made printable by PrintableText.
  void Add(std::vector<std::string> cells);

  // Returns all rows, heading first, with two spaces between columns and none at line ends.
  std::string ToString() const;

 private:
  size_t Width(size_t column) const;

  std::vector<std::vector<std::string>> rows_;  // [0] are the headings
  std::vector<bool> right_;
};

}  // namespace xpud::xpuctl
