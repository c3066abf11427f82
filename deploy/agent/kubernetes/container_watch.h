// Looks at the kubelet's containers shortly after claims were prepared, on a thread of its own: a container
// is listed only when its claim is there. Owned by Dra. Thread-safe.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class ContainerWatch {
 public:
  // From a prepare to the first look, and from each look to the next. Afterwards the reconciliation looks.
  static constexpr std::array<std::chrono::milliseconds, 7> kPauses = {
      std::chrono::milliseconds(250),   std::chrono::milliseconds(500),   std::chrono::milliseconds(1'000),
      std::chrono::milliseconds(2'000), std::chrono::milliseconds(4'000), std::chrono::milliseconds(8'000),
      std::chrono::milliseconds(16'000)};

  // `look` returns whether nothing is missing any more. It is called on the watch's thread.
  static absl::StatusOr<std::unique_ptr<ContainerWatch>> Start(std::function<bool()> look);
  ~ContainerWatch();
  ContainerWatch(const ContainerWatch&) = delete;
  ContainerWatch& operator=(const ContainerWatch&) = delete;

  // A claim was prepared. Does not block.
  void Ask();

 private:
  using Clock = std::chrono::steady_clock;

  explicit ContainerWatch(std::function<bool()> look) : look_(std::move(look)) {}
  void Run();
  // Returns false when the watch ends.
  bool WaitForTurn();
  void HasLooked(bool nothing_is_missing);

  const std::function<bool()> look_;
  Mutex mutex_;
  CondVar changed_;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  Clock::time_point due_ ABSL_GUARDED_BY(mutex_) = Clock::time_point::max();
  size_t looks_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last prepare
  std::thread thread_;
};

}  // namespace xpud::agent::kubernetes
