// What the subcommands show for people: text of whole lines in which names are printable, whatever the daemon
// sent; and rows of CSV. What is not measured is "-"; a wide view says why. Pure functions over the control
// plane's messages.
#pragma once

#include <string>

#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/rates.h"

namespace xpud::xpuctl {

std::string StatusText(const v1::GetStatusResponse& status, bool wide = false);
std::string DevicesText(const v1::ListDevicesResponse& list, bool wide = false);
std::string SessionsText(const v1::ListSessionsResponse& list, bool wide = false);
std::string QuotasText(const v1::ListQuotasResponse& list, bool wide = false);
std::string ConfigText(const v1::GetConfigResponse& config, bool wide = false);
std::string VersionText(const v1::GetVersionResponse& version);
std::string TopText(const v1::GetStatusResponse& status, const Rates& rates, bool wide = false);
std::string TenantsText(const Rates& rates, bool wide = false);  // of all that ever had a session
std::string TopJson(const v1::GetStatusResponse& status, const Rates& rates);

Csv StatusCsv(const v1::GetStatusResponse& status);                   // the daemon
Csv TopCsv(const v1::GetStatusResponse& status, const Rates& rates);  // devices, then sessions

}  // namespace xpud::xpuctl
