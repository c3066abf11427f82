// What a process is called in xpuctl. Any thread.
#pragma once

#include <string>

namespace xpud::client {

// $XPUD_CLIENT_NAME, else `given`, else the program's name: printable, and short enough for the greeting.
std::string ClientName(const std::string& given);

}  // namespace xpud::client
