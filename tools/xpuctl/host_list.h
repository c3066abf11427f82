// What several hosts answered. Values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace xpud::xpuctl {

// Those that answered, by the name that --host gave them.
template <typename Response>
using HostList = std::vector<std::pair<std::string, const Response*>>;

}  // namespace xpud::xpuctl
