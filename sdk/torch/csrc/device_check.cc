#include "sdk/torch/csrc/device_check.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "proto/ops/invalid_index.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/kernel.h"
#include "sdk/torch/csrc/map.h"

namespace xpud::shim {
namespace {

using at::Tensor;

// The messages of checks, by number. A program has few; those beyond the limit share one.
class Messages {
 public:
  static Messages& Get() {
    static auto* const messages = new Messages;  // errors are also reported while the process ends
    return *messages;
  }
  int64_t NumberOf(std::string_view message) {
    const std::scoped_lock lock(mutex_);
    for (size_t i = 0; i < messages_.size(); ++i)
      if (messages_[i] == message) return static_cast<int64_t>(i);
    if (messages_.size() == kMost) return 0;
    messages_.emplace_back(message);
    return static_cast<int64_t>(messages_.size() - 1);
  }
  std::string Of(int64_t number) {
    const std::scoped_lock lock(mutex_);
    const auto at = static_cast<size_t>(number);
    return at < messages_.size() ? messages_[at] : messages_[0];
  }

 private:
  static constexpr size_t kMost = 1024;

  std::mutex mutex_;
  std::vector<std::string> messages_ = {"An assertion on the device failed"};
};

void AssertAsyncMessage(const Tensor& self, c10::string_view message) {
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type()))
    return FallbackOf<at::_ops::_assert_async_msg>::Call(self, message);
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() < 2, "Boolean value of Tensor with more than one value is ambiguous");
  CheckOnDevice(self.eq(0), {message.data(), message.size()});
}

void AssertAsync(const Tensor& self) {
  AssertAsyncMessage(self, "Expected Tensor with single nonzero value, but got zero");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", XPUD_FN(AssertAsync));
  m.impl("_assert_async.msg", XPUD_FN(AssertAsyncMessage));
}

}  // namespace

// Reads a line of one element at the position `violated`, of which only 0 is in range.
void CheckOnDevice(const Tensor& violated, std::string_view message) {
  static const ops::Row& row = ops::RowOf("xpud::index_position");
  const Tensor any = violated.numel() == 1 ? violated.reshape({1}) : violated.any().view({1});
  const Tensor position = at::empty({1}, any.options().dtype(at::kLong));
  // Position 1 becomes the number of the check.
  const int64_t base = ops::InvalidIndexBase(ops::kFailedCheck) + Messages::Get().NumberOf(message) - 1;
  const MapInput inputs[] = {{0, false}, any, {1, false}, {base, false}};
  LaunchMap(row, ops::DType::kInt64, {&position, 1}, inputs);
  any.index_select(0, position);
}

void CheckRangeOnDevice(const Tensor& tensor, double lowest, double highest, std::string_view message) {
  static const ops::Row& row = ops::RowOf("xpud::outside");
  const MapInput inputs[] = {tensor, {lowest, false}, {highest, false}};
  Tensor outside;
  if (tensor.numel() > 0 && RunMap(row, inputs, outside)) CheckOnDevice(outside, message);
}

std::optional<std::string> MessageOfFailedCheck(std::string_view error) {
  const std::optional<int64_t> number = ops::FailedCheckOf(error);
  return number.has_value() ? std::optional(Messages::Get().Of(*number)) : std::nullopt;
}

}  // namespace xpud::shim
