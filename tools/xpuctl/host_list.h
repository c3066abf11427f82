// The answers of several hosts. Values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xpud::xpuctl {

// The hosts that answered, by their name in --host.
template <typename Response>
using HostList = std::vector<std::pair<std::string, const Response*>>;

}  // namespace xpud::xpuctl
