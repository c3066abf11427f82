#include "daemon/stream/device_error.h"

#include "absl/strings/str_cat.h"
#include "proto/ops/check.h"
#include "proto/ops/family.h"
#include "proto/ops/invalid_index.h"

namespace xpud::stream {
namespace {

absl::Status ErrorOfLoopKernel(uint64_t word, const std::string& name) {
  constexpr int kCodeBits = 8, kStatementBits = 64 - kCodeBits - kernels::kLoopIndexBits;
  const auto code = static_cast<kernels::DeviceError>(word & 0xff);
  const int64_t index = static_cast<int64_t>(word << kStatementBits) >> (kStatementBits + kCodeBits);
  const std::string where = absl::StrCat(" (", name, ", statement ", word >> (64 - kStatementBits), ")");
  if (code == kernels::DeviceError::kAssertion)
    return absl::FailedPreconditionError(absl::StrCat("a device-side assertion failed", where));
  return absl::OutOfRangeError(absl::StrCat("index ", index, " is out of bounds", where));
}

}  // namespace

Reporter Reporter::Of(const kernels::OpCall& call) {
  if (call.kernel != nullptr) return {"loop kernel " + std::string(call.kernel->name), true};
  return {ops::Describe(call), false};
}

bool MayReport(const kernels::OpCall& call) {
  return call.kernel != nullptr ? call.kernel->reports : ops::DescriptorOf(*call.row).reads_indices();
}

absl::Status ErrorOf(uint64_t word, const Reporter& reporter) {
  if (reporter.is_loop_kernel) return ErrorOfLoopKernel(word, reporter.name);
  return absl::OutOfRangeError(ops::DescribeInvalidIndex(static_cast<int64_t>(word) >> 8, reporter.name));
}

}  // namespace xpud::stream
