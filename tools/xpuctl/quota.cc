#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
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
  return RefuseUsage("quota", absl::StrCat(what, ", not \"", found, "\""));
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
  const size_t slash = text.find('/');  // USER/TENANT: a tenant of that user's gateway
  const std::optional<uint32_t> uid = ParseUser(text.substr(0, slash));
  if (uid) request.set_uid(*uid);
  if (slash != std::string::npos) request.set_tenant_name(text.substr(slash + 1));
  return uid.has_value();
}

// Returns kOk, or kUsage after printing an error.
int ReadRequest(const Invocation& invocation, v1::SetQuotaRequest& request) {
  const std::vector<std::string>& words = invocation.arguments;
  if (invocation.Has("--device")) {
    uint32_t device = 0;
    const std::string& value = invocation.options.at("--device");
    if (!Parse(value, device)) return Refuse("--device takes a number", value);
    request.set_device(device);
  }
  if (words.size() != 2) return Refuse("it takes a target and a size", words.back());
  if (!SetTarget(words[0], request))
    return Refuse("the target must be default, a user, USER/TENANT or session:ID", words[0]);
  if (words[1] == "none") return kOk;
  const std::optional<uint64_t> bytes = ParseBytes(words[1]);
  if (!bytes) return Refuse("the quota must be a size such as 4GiB, or none", words[1]);
  request.set_bytes(*bytes);
  return kOk;
}

}  // namespace

int RunQuota(const Invocation& invocation) {
  const View<v1::ListQuotasResponse> view = {
      QuotasText, [](const auto& response) { return CsvOf(response.time_ns(), response.quotas()); },
      HostsText};
  if (invocation.arguments.empty()) {
    if (invocation.Has("--device")) return RefuseUsage("quota", "--device is only for setting a quota");
    return ShowView(invocation, &control::Client::ListQuotas, view);
  }
  if (!invocation.hosts.empty()) return RefuseUsage("quota", "use --address to set a quota");
  v1::SetQuotaRequest request;
  if (const int refused = ReadRequest(invocation, request)) return refused;
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  const auto list = client->SetQuota(request);
  if (!list.ok()) return Report(list.status());
  std::fputs(Render(view, *list, invocation.output, true).c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
