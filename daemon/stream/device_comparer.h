// A Comparer whose kernels run in a queue of their own on the device. It is not of a lower class than others:
// what they read stays on the device until they end, while another tenant may wait for its turn. Digests have
// a secret key, so that nobody can make contents that have equal ones. REQUIRES: the lane's thread.
#pragma once

#include <memory>
#include <span>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/stream/comparer.h"
#include "kernels/api/launch.h"
#include "kernels/dispatch/kernel_library.h"

namespace xpud::stream {

class DeviceComparer final : public Comparer {
 public:
  // Device and library outlive it.
  DeviceComparer(executor::Device& device, kernels::KernelLibrary& library);
  ~DeviceComparer() override;

  uint64_t piece_bytes() const override { return piece_bytes_; }
  void WarmUp() override;
  absl::StatusOr<bool> StartDigest(const std::byte* memory, uint64_t bytes) override;
  absl::StatusOr<bool> StartCompare(const std::byte* a, const std::byte* b, uint64_t bytes) override;
  absl::StatusOr<std::optional<Result>> Poll() override;
  void Reset() override;

 private:
  struct Report;  // words that the device writes

  absl::Status Prepare();
  // Plan the launches of a piece.
  absl::StatusOr<kernels::Readiness> PlanDigest(const std::byte* memory, uint64_t bytes);
  absl::StatusOr<kernels::Readiness> PlanCompare(const std::byte* a, const std::byte* b, uint64_t bytes);
  absl::StatusOr<kernels::Readiness> Plan(kernels::OpCall& call);
  absl::StatusOr<bool> Start(const absl::StatusOr<kernels::Readiness>& planned,
                             std::span<const executor::MemoryUse> uses);
  absl::Status Append(std::span<const executor::MemoryUse> uses);

  executor::Device& device_;
  kernels::KernelLibrary& library_;
  const uint64_t key_;
  const uint64_t piece_bytes_;
  std::unique_ptr<executor::HostMemory> memory_;  // a Report, and workspace
  std::unique_ptr<executor::DeviceQueue> queue_;
  kernels::LaunchList launches_;
  uint64_t sequence_ = 0;  // of the last piece
  absl::Status trouble_;   // of the queue
};

}  // namespace xpud::stream
