// A module that is made in the background, and may be shared by several devices. Its maker settles it once;
// then it is immutable. Thread-safe.
#pragma once

#include <atomic>
#include <utility>

#include "absl/status/status.h"
#include "kernels/api/launch.h"

namespace xpud::kernels {

class Code {
 public:
  enum class State { kPending, kReady, kFailed };

  Code() = default;
  explicit Code(ModuleImage image) { SetReady(std::move(image)); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  State state() const { return state_.load(std::memory_order_acquire); }
  const ModuleImage& image() const { return image_; }       // REQUIRES: kReady
  const absl::Status& failure() const { return failure_; }  // REQUIRES: kFailed

  // REQUIRES: the state is kPending; called by the maker.
  void SetReady(ModuleImage image) {
    image_ = std::move(image);
    state_.store(State::kReady, std::memory_order_release);
  }
  void SetFailed(absl::Status failure) {
    failure_ = std::move(failure);
    state_.store(State::kFailed, std::memory_order_release);
  }

 private:
  std::atomic<State> state_{State::kPending};
  // Written before state_.
  ModuleImage image_;
  absl::Status failure_;
};

}  // namespace xpud::kernels
