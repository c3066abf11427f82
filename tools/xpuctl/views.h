// What the subcommands show for people: text of whole lines in which names are printable, whatever the daemon
// sent. Pure functions over the control plane's messages.
#pragma once

#include <string>

#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/rates.h"

namespace xpud::xpuctl {

std::string StatusText(const v1::GetStatusResponse& status);
std::string DevicesText(const v1::ListDevicesResponse& list);
std::string SessionsText(const v1::ListSessionsResponse& list);
std::string QuotasText(const v1::ListQuotasResponse& list);
std::string VersionText(const v1::GetVersionResponse& version);
std::string TopText(const v1::GetStatusResponse& status, const Rates& rates);
std::string TopJson(const v1::GetStatusResponse& status, const Rates& rates);

}  // namespace xpud::xpuctl
