#include "deploy/agent/kubernetes/json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xpud::agent::kubernetes {
namespace {

// How deeply the text nests, as far as the parser comes: it stops at the first error.
size_t DepthOf(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes; it may have ", max_bytes));
  }
  const size_t depth = DepthOf(text);
  if (depth > kMaxJsonDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON that nests ", depth, " deep; it may nest ", kMaxJsonDepth));
  }
  Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return absl::InvalidArgumentError("the text is not JSON");
  return value;
}

const Json& Member(const Json& value, std::string_view name) {
  static const Json null;
  if (!value.is_object()) return null;
  const auto found = value.find(name);
  return found == value.end() ? null : *found;
}

std::string_view TextMember(const Json& value, std::string_view name) {
  const auto* text = Member(value, name).get_ptr<const std::string*>();
  return text == nullptr ? std::string_view() : std::string_view(*text);
}

std::string JsonText(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace xpud::agent::kubernetes
