// Text in columns: a heading, and rows as wide as they need. One thread.
#pragma once

#include <string>
#include <vector>

namespace xpud::xpuctl {

class Table {
 public:
  // Columns are right-aligned when their heading starts with '>' (numbers), which is not printed.
  explicit Table(std::vector<std::string> headings);

  // As many cells as there are headings; fewer leave the rest empty. Shown as PrintableText makes them.
  void Add(std::vector<std::string> cells);

  // All rows, heading first, two spaces between columns, no spaces at line ends.
  std::string ToString() const;

 private:
  size_t Width(size_t column) const;

  std::vector<std::vector<std::string>> rows_;  // [0] are the headings
  std::vector<bool> right_;
};

}  // namespace xpud::xpuctl
