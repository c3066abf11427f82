// For whom kernels are planned: a client's session on a device. Kernels that are made of what clients send
// are compiled in its tenant's turn. A session is two owners: one for its calls, which wait, and one for what
// is compiled ahead of them. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/hash/hash.h"

namespace xpud::kernels {

class KernelOwner : public std::enable_shared_from_this<KernelOwner> {
 public:
  // `tenant`: Tenant::Text.
  static std::shared_ptr<KernelOwner> Create(std::string_view tenant, bool is_ahead = false) {
    return std::make_shared<KernelOwner>(absl::Hash<std::string_view>()(tenant) | 1, is_ahead);
  }
  explicit KernelOwner(uint64_t tenant, bool is_ahead = false) : tenant_(tenant), is_ahead_(is_ahead) {}

  // A number of the tenant in this process, not 0.
  uint64_t tenant() const { return tenant_; }
  // Whether nothing waits for its kernels yet. Those of the tenant's calls are compiled before them.
  bool is_ahead() const { return is_ahead_; }
  // Kernels that wait for their turn or are being compiled.
  uint64_t pending() const { return pending_.load(std::memory_order_relaxed); }
  // How long compilations took in its turns.
  uint64_t compile_ns() const { return compile_ns_.load(std::memory_order_relaxed); }

  void AddPending(int64_t change) {
    pending_.fetch_add(static_cast<uint64_t>(change), std::memory_order_relaxed);
  }
  void Charge(uint64_t ns) { compile_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  const uint64_t tenant_;
  const bool is_ahead_;
  std::atomic<uint64_t> pending_{0}, compile_ns_{0};
};

}  // namespace xpud::kernels
