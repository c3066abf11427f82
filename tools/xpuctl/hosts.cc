#include "tools/xpuctl/hosts.h"

#include "proto/base/text.h"

namespace xpud::xpuctl {
namespace {

std::string TextOf(const absl::Status& error) {
  return PrintableText(std::string_view(error.message().data(), error.message().size()));
}

}  // namespace

std::string ErrorLine(const std::string& host, const absl::Status& error) {
  return absl::StrCat(PrintableText(host), "  error: ", TextOf(error), "\n");
}

std::string ErrorObject(const std::string& host, const absl::Status& error) {
  return absl::StrCat("{\"host\":", JsonString(host), ",\"error\":", JsonString(TextOf(error)), "}");
}

std::string WithHost(const std::string& host, std::string_view object) {
  const std::string rest(object.substr(1));
  return absl::StrCat("{\"host\":", JsonString(host), rest == "}" ? "" : ",", rest);
}

}  // namespace xpud::xpuctl
