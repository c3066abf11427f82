#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/units.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

template <typename Number>
bool Parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

int Refuse(const char* what, const std::string& found) {
  std::fprintf(stderr, "xpuctl quota: %s, not \"%s\"; see xpuctl --help\n", what, found.c_str());
  return kUsage;
}

bool SetTarget(const std::string& text, v1::SetQuotaRequest& request) {
  constexpr std::string_view kSession = "session:";
  if (text == "default") {
    request.set_default_(true);
    return true;
  }
  if (text.starts_with(kSession)) {
    uint64_t id = 0;
    if (!Parse(std::string_view(text).substr(kSession.size()), id)) return false;
    request.set_session(id);
    return true;
  }
  const std::optional<uint32_t> uid = ParseUser(text);
  if (uid) request.set_uid(*uid);
  return uid.has_value();
}

// kOk, or a usage error that was reported.
int ReadRequest(std::vector<std::string> words, v1::SetQuotaRequest& request) {
  if (words.size() == 4 && words[2] == "--device") {
    uint32_t device = 0;
    if (!Parse(words[3], device)) return Refuse("--device is a number", words[3]);
    request.set_device(device);
    words.resize(2);
  }
  if (words.size() != 2) return Refuse("it takes whose quota and how much", words.back());
  if (!SetTarget(words[0], request)) return Refuse("a quota is of default, a user or session:ID", words[0]);
  if (words[1] == "none") return kOk;
  const std::optional<uint64_t> bytes = ParseBytes(words[1]);
  if (!bytes) return Refuse("a quota is a size like 4GiB, or none", words[1]);
  request.set_bytes(*bytes);
  return kOk;
}

}  // namespace

int RunQuota(const Invocation& invocation) {
  v1::SetQuotaRequest request;
  if (!invocation.arguments.empty()) {
    if (const int refused = ReadRequest(invocation.arguments, request)) return refused;
  }
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto list = invocation.arguments.empty() ? client->ListQuotas() : client->SetQuota(request);
  if (!list.ok()) return Report(list.status());
  const bool json = invocation.output == Output::kJson;
  std::fputs((json ? ToJson(*list) + "\n" : QuotasText(*list)).c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
