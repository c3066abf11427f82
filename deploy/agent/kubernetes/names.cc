#include "deploy/agent/kubernetes/names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr size_t kMaxUid = 59;
constexpr size_t kMaxObjectName = 253;

bool IsLowerAlnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsPart(std::string_view text) {
  return !text.empty() && IsLowerAlnum(text.front()) && IsLowerAlnum(text.back()) &&
         std::ranges::all_of(text, [](char c) { return IsLowerAlnum(c) || c == '-'; });
}

}  // namespace

bool IsUid(std::string_view text) { return text.size() <= kMaxUid && IsPart(text); }

bool IsObjectName(std::string_view text) {
  if (text.size() > kMaxObjectName) return false;
  const std::vector<std::string> parts = absl::StrSplit(View(text), '.');
  return std::ranges::all_of(parts, IsPart);
}

absl::Status CheckClaimName(const ClaimName& name) {
  if (IsUid(name.uid) && IsObjectName(name.name_space) && IsObjectName(name.name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "no ResourceClaim has the namespace \"", PrintableText(name.name_space, 80), "\", the name \"",
      PrintableText(name.name, 80), "\" and the uid \"", PrintableText(name.uid, 80), "\""));
}

std::string KeyOf(std::string_view uid) { return absl::StrCat("k8s-", View(uid)); }

std::string ClaimPath(std::string_view name_space, std::string_view name) {
  return absl::StrCat("/apis/resource.k8s.io/v1/namespaces/", View(name_space), "/resourceclaims/",
                      View(name));
}

}  // namespace xpud::agent::kubernetes
