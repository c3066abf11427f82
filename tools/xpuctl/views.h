// Text that the subcommands show to people, in whole lines with printable names, whatever the daemon sent;
// and CSV. Unmeasured values are "-", and wide views give the reason. Pure functions of the control plane's
// messages.
#pragma once

#include <string>
#include <vector>

#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/host_list.h"
#include "tools/xpuctl/rates.h"
#include "tools/xpuctl/table.h"

namespace xpud::xpuctl {

// For several hosts: a column, or a line in the status, names the host.
std::string HostsText(const HostList<v1::GetStatusResponse>& answers, bool wide);
std::string HostsText(const HostList<v1::ListDevicesResponse>& answers, bool wide);
std::string HostsText(const HostList<v1::ListSessionsResponse>& answers, bool wide);
std::string HostsText(const HostList<v1::ListQuotasResponse>& answers, bool wide);

std::string StatusText(const v1::GetStatusResponse& status, bool wide = false);
std::string DevicesText(const v1::ListDevicesResponse& list, bool wide = false);
std::string SessionsText(const v1::ListSessionsResponse& list, bool wide = false);
std::string QuotasText(const v1::ListQuotasResponse& list, bool wide = false);
std::string ConfigText(const v1::GetConfigResponse& config, bool wide = false);
std::string VersionText(const v1::GetVersionResponse& version);
std::string TopText(const v1::GetStatusResponse& status, const Rates& rates, bool wide = false);
// A sample of one host. With several hosts, a column or the start of a line names the host.
struct TopSample {
  std::string host;  // empty if there is only one
  const v1::GetStatusResponse* status;
  const Rates* rates;
};
std::string TopText(const std::vector<TopSample>& samples, bool wide);
// The parts of `top`: first daemons, devices and, if there are several, tenants; then one row per session.
std::string TopHead(const std::vector<TopSample>& samples, bool wide);
struct TopRow {
  std::string host;
  const SessionRates* rates;
};
std::vector<TopRow> BusiestFirst(const std::vector<TopSample>& samples);
Table TopSessions(const std::vector<TopSample>& samples, const std::vector<TopRow>& rows, bool wide);
std::string TopJson(const v1::GetStatusResponse& status, const Rates& rates);

Csv StatusCsv(const v1::GetStatusResponse& status);                   // the daemon
Csv TopCsv(const v1::GetStatusResponse& status, const Rates& rates);  // devices, then sessions

}  // namespace xpud::xpuctl
