#include "proto/ops/op_table.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "absl/container/flat_hash_map.h"

namespace xpud::ops {
namespace {

constexpr Row kTable[] = {
#include "proto/ops/rows.inc"
};

constexpr int kMaxNumber = [] {
  int largest = 0;
  for (const Row& row : kTable) largest = row.number > largest ? row.number : largest;
  return largest;
}();
static_assert(kMaxNumber <= kMaxRowNumber);

constexpr auto kRowByNumber = [] {
  std::array<const Row*, kMaxNumber + 1> rows{};
  for (const Row& row : kTable) rows[row.number] = &row;
  return rows;
}();

constexpr RowSet kKnown = [] {
  RowSet rows{};
  for (const Row& row : kTable) rows[row.number / 64] |= uint64_t{1} << row.number % 64;
  return rows;
}();

using NameIndex = absl::flat_hash_map<std::string_view, const Row*>;

const NameIndex& RowByName() {
  static const NameIndex* const index = [] {
    auto* built = new NameIndex;
    for (const Row& row : kTable) {
      std::string_view rest = row.aten;
      while (!rest.empty()) {
        const size_t bar = rest.find('|');
        built->emplace(rest.substr(0, bar), &row);
        rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
      }
    }
    return built;
  }();
  return *index;
}

}  // namespace

constinit const std::span<const Row> kRows = kTable;

const RowSet& KnownRows() { return kKnown; }

const Row* FindRow(uint16_t number) { return number <= kMaxNumber ? kRowByNumber[number] : nullptr; }

const Row* FindRow(std::string_view aten) {
  const auto found = RowByName().find(aten);
  return found == RowByName().end() ? nullptr : found->second;
}

const Row& RowOf(std::string_view aten) {
  const Row* row = FindRow(aten);
  if (row == nullptr) {
    std::fprintf(stderr, "no row of the op table serves %.*s\n", static_cast<int>(aten.size()), aten.data());
    std::abort();
  }
  return *row;
}

}  // namespace xpud::ops
