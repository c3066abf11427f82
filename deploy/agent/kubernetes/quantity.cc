#include "deploy/agent/kubernetes/quantity.h"

#include <array>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kMaxValue = std::numeric_limits<int64_t>::max();
constexpr size_t kMaxText = 64;
// Above what 2^63 has, and with 2^60 still within 128 bits.
constexpr size_t kMaxDigits = 20;
constexpr int kMaxExponent = 100;
constexpr std::array<const char*, 6> kBinary = {"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
struct Decimal {
  const char* suffix;
  int exponent;
};
constexpr std::array<Decimal, 10> kDecimal = {{{"n", -9},
                                               {"u", -6},
                                               {"m", -3},
                                               {"", 0},
                                               {"k", 3},
                                               {"M", 6},
                                               {"G", 9},
                                               {"T", 12},
                                               {"P", 15},
                                               {"E", 18}}};

template <typename... Parts>
absl::Status Refuse(std::string_view text, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("quantity \"", PrintableText(text, 80), "\" ", parts...));
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// digits * 10^exponent * 2^shift. The digits have no zeros in front or behind; none: 0.
struct Number {
  std::string digits;
  int exponent = 0;
  int shift = 0;
};

// Takes digits with at most one point from the front of `rest`.
std::optional<Number> TakeDigits(std::string_view& rest) {
  Number number;
  bool digit = false, point = false;
  for (; !rest.empty() && (IsDigit(rest[0]) || (rest[0] == '.' && !point)); rest.remove_prefix(1)) {
    if (rest[0] == '.') {
      point = true;
      continue;
    }
    digit = true;
    if (rest[0] != '0' || !number.digits.empty()) number.digits += rest[0];
    if (point) --number.exponent;
  }
  for (; number.digits.ends_with('0'); number.digits.pop_back()) ++number.exponent;
  if (!digit) return std::nullopt;
  return number;
}

// Applies what stands behind the digits. Returns false if no quantity ends so.
bool ApplySuffix(std::string_view suffix, Number& number) {
  for (size_t i = 0; i < kBinary.size(); ++i) {
    if (suffix != kBinary[i]) continue;
    number.shift = 10 * static_cast<int>(i + 1);
    return true;
  }
  for (const Decimal& decimal : kDecimal) {
    if (suffix != decimal.suffix) continue;
    number.exponent += decimal.exponent;
    return true;
  }
  if (suffix[0] != 'e' && suffix[0] != 'E') return false;
  suffix.remove_prefix(1);
  const bool negative = suffix.starts_with('-');
  if (negative || suffix.starts_with('+')) suffix.remove_prefix(1);
  if (suffix.empty()) return false;
  int exponent = 0;
  for (const char c : suffix) {
    if (!IsDigit(c)) return false;
    if (exponent <= kMaxExponent) exponent = exponent * 10 + (c - '0');
  }
  number.exponent += negative ? -exponent : exponent;
  return true;
}

}  // namespace

absl::StatusOr<uint64_t> WholeQuantity(std::string_view text) {
  if (text.size() > kMaxText) return Refuse(text, "has ", text.size(), " bytes; it may have ", kMaxText);
  std::string_view rest = text;
  if (rest.starts_with('-')) return Refuse(text, "is negative");
  if (rest.starts_with('+')) rest.remove_prefix(1);
  std::optional<Number> number = TakeDigits(rest);
  if (!number || !ApplySuffix(rest, *number)) return Refuse(text, "is no quantity, such as 30 or 4Gi");
  if (number->digits.empty()) return 0;
  if (number->digits.size() > kMaxDigits) return Refuse(text, "has more than ", kMaxDigits, " digits");

  Wide value = 0;
  for (const char c : number->digits) value = value * 10 + static_cast<Wide>(c - '0');
  value <<= number->shift;
  for (; number->exponent < 0; ++number->exponent) {
    if (value % 10 != 0) return Refuse(text, "is not a whole number");
    value /= 10;
  }
  for (; number->exponent > 0 && value <= kMaxValue; --number->exponent) value *= 10;
  if (value > kMaxValue) return Refuse(text, "is above ", kMaxValue);
  return static_cast<uint64_t>(value);
}

std::string BinaryQuantity(uint64_t value) {
  size_t suffix = 0;
  for (; value != 0 && value % 1024 == 0 && suffix < kBinary.size(); ++suffix) value /= 1024;
  return absl::StrCat(value, suffix == 0 ? "" : kBinary[suffix - 1]);
}

std::string DecimalQuantity(uint64_t value) {
  size_t suffix = 3;  // of kDecimal: none
  for (; value != 0 && value % 1000 == 0 && suffix + 1 < kDecimal.size(); ++suffix) value /= 1000;
  return absl::StrCat(value, kDecimal[suffix].suffix);
}

}  // namespace xpud::agent::kubernetes
