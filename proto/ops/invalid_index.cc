#include "proto/ops/invalid_index.h"

#include <charconv>

#include "absl/strings/str_cat.h"

namespace xpud::ops {
namespace {

constexpr std::string_view kCheck = "check ", kFailed = " failed in ";

}  // namespace

std::string DescribeInvalidIndex(int64_t value, const std::string& command) {
  constexpr int64_t kFirst = -(int64_t{1} << 55), kEnd = -(int64_t{1} << 54);
  int dim = kNoDimension;
  int64_t index = value;
  if (kFirst <= value && value < kEnd) {
    dim = static_cast<int>((value - kFirst) >> 50);
    index -= InvalidIndexBase(dim);
  }
  if (dim == kFailedCheck) return absl::StrCat(std::string(kCheck), index, std::string(kFailed), command);
  if (dim == kNoDimension) return absl::StrCat("index ", index, " is out of range in ", command);
  return absl::StrCat("index ", index, " is out of range for dimension ", dim, " in ", command);
}

std::optional<int64_t> FailedCheckOf(std::string_view message) {
  if (!message.starts_with(kCheck)) return std::nullopt;
  message.remove_prefix(kCheck.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(message.data(), message.data() + message.size(), number);
  if (error != std::errc()) return std::nullopt;
  message.remove_prefix(static_cast<size_t>(end - message.data()));
  return message.starts_with(kFailed) ? std::optional(number) : std::nullopt;
}

}  // namespace xpud::ops
