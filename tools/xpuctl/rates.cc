#include "tools/xpuctl/rates.h"

#include <algorithm>
#include <functional>
#include <string>

namespace xpud::xpuctl {
namespace {

double Growth(uint64_t before, uint64_t now) {
  return static_cast<double>(now >= before ? now - before : now);
}

const v1::Device* Find(const v1::GetStatusResponse& sample, uint32_t index) {
  for (const v1::Device& device : sample.devices()) {
    if (device.index() == index) return &device;
  }
  return nullptr;
}

const v1::Session* Find(const v1::GetStatusResponse& sample, uint64_t id) {
  for (const v1::Session& session : sample.sessions()) {
    if (session.id() == id) return &session;
  }
  return nullptr;
}

const v1::TenantTotal* Find(const v1::GetStatusResponse& sample, const std::string& name) {
  for (const v1::TenantTotal& tenant : sample.tenants()) {
    if (tenant.tenant() == name) return &tenant;
  }
  return nullptr;
}

}  // namespace

Rates Between(const v1::GetStatusResponse& earlier, const v1::GetStatusResponse& later) {
  Rates rates;
  const double ns = std::max(Growth(earlier.time_ns(), later.time_ns()), 1.0);
  rates.seconds = ns / 1e9;
  if (earlier.daemon().has_cpu_ns() && later.daemon().has_cpu_ns()) {
    rates.daemon_cpu = Growth(earlier.daemon().cpu_ns(), later.daemon().cpu_ns()) / ns;
  }
  for (const v1::Device& now : later.devices()) {
    const v1::Device* found = Find(earlier, now.index());
    const v1::Device& before = found ? *found : v1::Device::default_instance();
    rates.devices.push_back({&now, std::min(Growth(before.busy_ns(), now.busy_ns()) / ns, 1.0),
                             Growth(before.commands_completed(), now.commands_completed()) / rates.seconds});
  }
  for (const v1::Session& now : later.sessions()) {
    const v1::Session* found = Find(earlier, now.id());
    const v1::Session& before = found ? *found : v1::Session::default_instance();
    rates.sessions.push_back({&now, Growth(before.busy_ns(), now.busy_ns()) / ns,
                              Growth(before.commands_completed(), now.commands_completed()) / rates.seconds,
                              Growth(before.kernels(), now.kernels()) / rates.seconds,
                              Growth(before.uploaded_bytes(), now.uploaded_bytes()) / rates.seconds,
                              Growth(before.downloaded_bytes(), now.downloaded_bytes()) / rates.seconds,
                              Growth(before.queue_wait_ns(), now.queue_wait_ns()) / ns});
  }
  for (const v1::TenantTotal& now : later.tenants()) {
    const v1::TenantTotal* found = Find(earlier, now.tenant());
    const v1::TenantTotal& before = found ? *found : v1::TenantTotal::default_instance();
    rates.tenants.push_back({&now, Growth(before.busy_ns(), now.busy_ns()) / ns,
                             Growth(before.commands_completed(), now.commands_completed()) / rates.seconds,
                             Growth(before.queue_wait_ns(), now.queue_wait_ns()) / ns});
  }
  std::sort(rates.tenants.begin(), rates.tenants.end(), [](const TenantRates& a, const TenantRates& b) {
    return a.busy != b.busy ? a.busy > b.busy : a.tenant->tenant() < b.tenant->tenant();
  });
  std::sort(rates.sessions.begin(), rates.sessions.end(), [](const SessionRates& a, const SessionRates& b) {
    return a.busy != b.busy ? a.busy > b.busy : a.session->id() < b.session->id();
  });
  return rates;
}

}  // namespace xpud::xpuctl
