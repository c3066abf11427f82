#include "tools/xpuctl/top_source.h"

#include <algorithm>
#include <utility>

namespace xpud::xpuctl {
namespace {

std::vector<std::string> NamesOf(const Invocation& invocation) {
  return invocation.hosts.empty() ? std::vector<std::string>{invocation.address} : invocation.hosts;
}

}  // namespace

TopSource::TopSource(const Invocation& invocation)
    : address_(invocation.address), hosts_(NamesOf(invocation)), named_(!invocation.hosts.empty()) {}

absl::Status TopSource::Sample() {
  before_ = std::exchange(now_, hosts_.Ask<v1::GetStatusResponse>(&control::Client::GetStatus));
  if (!named_) {
    if (!now_[0].response.ok()) return now_[0].response.status();
    now_[0].host.clear();
  }
  rates_.clear();
  for (const auto& later : now_) {
    const auto earlier = std::ranges::find(before_, later.host, &HostAnswer<v1::GetStatusResponse>::host);
    if (!later.response.ok() || earlier == before_.end() || !earlier->response.ok()) continue;
    rates_[later.host] = Between(*earlier->response, *later.response);
  }
  return absl::OkStatus();
}

std::vector<TopSample> TopSource::samples() const {
  std::vector<TopSample> samples;
  for (const auto& answer : now_) {
    const auto rates = rates_.find(answer.host);
    if (rates != rates_.end()) samples.push_back({answer.host, &*answer.response, &rates->second});
  }
  return samples;
}

}  // namespace xpud::xpuctl
