// The data of `top`: for each host, two samples and their difference. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/xpuctl/hosts.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

class TopSource {
 public:
  // Without hosts, uses the invocation's address.
  explicit TopSource(const Invocation& invocation);

  // Asks all hosts; rates are relative to the previous call. Returns an error only if there is one host
  // without a name.
  absl::Status Sample();
  // The hosts that answered this time and the time before. Valid until the next Sample.
  std::vector<TopSample> samples() const;
  const std::vector<HostAnswer<v1::GetStatusResponse>>& answers() const { return now_; }
  bool all_answered() const { return Answered(now_).size() == now_.size(); }
  // Returns the address for calls about a host's session.
  std::string AddressOf(const std::string& host) const { return host.empty() ? address_ : host; }

 private:
  const std::string address_;
  const Hosts hosts_;
  const bool named_;
  std::vector<HostAnswer<v1::GetStatusResponse>> before_, now_;
  std::map<std::string, Rates> rates_;
};

}  // namespace xpud::xpuctl
