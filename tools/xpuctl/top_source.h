// What `top` shows: for each host the difference of two samples. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/xpuctl/hosts.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

class TopSource {
 public:
  // No hosts: the one at the invocation's address.
  explicit TopSource(const Invocation& invocation);

  // Asks all; the rates are those since the call before. An error only where there is one host, without a
  // name.
  absl::Status Sample();
  // Of those that answered now and before; until the next Sample.
  std::vector<TopSample> samples() const;
  const std::vector<HostAnswer<v1::GetStatusResponse>>& answers() const { return now_; }
  bool all_answered() const { return Answered(now_).size() == now_.size(); }
  // Where calls about a host's session go.
  std::string AddressOf(const std::string& host) const { return host.empty() ? address_ : host; }

 private:
  const std::string address_;
  const Hosts hosts_;
  const bool named_;
  std::vector<HostAnswer<v1::GetStatusResponse>> before_, now_;
  std::map<std::string, Rates> rates_;
};

}  // namespace xpud::xpuctl
