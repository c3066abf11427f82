// opdoc FILE [--check]: writes the table of ops, made from the op table, between the markers in FILE; with
// --check says whether the one that stands there is current.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/ops/family.h"

namespace xpud::opdoc {
namespace {

constexpr std::string_view kBegin = "<!-- opdoc begin: made by tools/opdoc, do not edit -->\n";
constexpr std::string_view kEnd = "<!-- opdoc end -->";

// The names of a row without their overloads, each once: "add.Tensor|add.Scalar" is add.
std::vector<std::string> Names(std::string_view aten) {
  std::vector<std::string> names;
  while (!aten.empty()) {
    const size_t end = std::min(aten.find('|'), aten.size());
    const std::string_view overload = aten.substr(0, end);
    const std::string name(overload.substr(0, overload.find('.')));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    aten.remove_prefix(std::min(end + 1, aten.size()));
  }
  return names;
}

std::string Types(ops::DTypeSet set) {
  for (const auto& [known, name] :
       {std::pair(ops::kAllTypes, "all"), std::pair(ops::kNumericTypes, "all but bool"),
        std::pair(ops::kFloatTypes, "floating"), std::pair(ops::kIntegerOrBoolTypes, "integer, bool")}) {
    if (set == known) return name;
  }
  std::string names;
  for (int i = 0; i < ops::kNumDTypes; ++i) {
    const auto type = static_cast<ops::DType>(i);
    if (ops::Contains(set, type)) names += (names.empty() ? "" : ", ") + std::string(ops::Info(type).name);
  }
  return names;
}

std::string Table() {
  std::string text = "| family | element types | ops |\n|---|---|---|\n";
  for (size_t f = 0; f < ops::kNumFamilies; ++f) {
    const auto family = static_cast<ops::Family>(f);
    const std::string_view title = ops::DescriptorOf(family).title;
    if (title.empty()) continue;  // for tests
    std::map<std::string, std::string> by_types;
    for (const ops::Row& row : ops::kRows) {
      if (row.family != family) continue;
      std::string& cell = by_types[Types(row.dtypes)];
      for (const std::string& name : Names(row.aten)) cell += (cell.empty() ? "`" : ", `") + name + "`";
    }
    for (const auto& [types, names] : by_types)
      text.append("| ").append(title).append(" | ").append(types).append(" | ").append(names).append(" |\n");
  }
  return text;
}

// `document` with the table between its markers, or nothing when it has no markers.
std::optional<std::string> WithTable(const std::string& document) {
  const size_t begin = document.find(kBegin);
  const size_t end = document.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  return document.substr(0, begin) + std::string(kBegin) + Table() + document.substr(end);
}

int Main(const std::string& path, bool check) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  const std::optional<std::string> updated = WithTable(content.str());
  if (!updated) {
    std::fprintf(stderr, "opdoc: %s has no place for the table of ops\n", path.c_str());
    return 1;
  }
  if (!check) return (std::ofstream(path) << *updated).flush() ? 0 : 1;
  if (*updated == content.str()) return 0;
  std::fprintf(stderr, "opdoc: the table of ops in %s is not the op table's; run \"opdoc %s\"\n",
               path.c_str(), path.c_str());
  return 1;
}

}  // namespace
}  // namespace xpud::opdoc

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[2]) == "--check";
  if (argc != 2 && !check) {
    std::fputs("usage: opdoc FILE [--check]\n", stderr);
    return 2;
  }
  return xpud::opdoc::Main(argv[1], check);
}
