#include "daemon/stream/device_comparer.h"

#include <sys/random.h>

#include <atomic>

#include "daemon/tenant/time_grant.h"
#include "proto/base/check.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace xpud::stream {
namespace {

using executor::MemoryUse;
using kernels::Operand;

// Short on any device, so that other work is not held up: tens of microseconds on a GPU.
constexpr uint64_t kGpuPiece = 64 << 20, kCpuPiece = 1 << 20;
constexpr uint64_t kWorkspaceAt = 256, kWorkspaceBytes = 64 << 10;  // after the Report

uint64_t RandomKey() {
  uint64_t key;
  XPUD_CHECK(getrandom(&key, sizeof(key), 0) == sizeof(key));
  return key;
}

Operand Integers(const void* memory, uint64_t count) {
  Operand operand;
  operand.data = const_cast<void*>(memory);
  operand.dtype = ops::DType::kInt64;
  operand.rank = 1;
  operand.sizes[0] = static_cast<int64_t>(count);
  operand.strides[0] = 1;
  return operand;
}

MemoryUse ReadOf(const std::byte* memory, uint64_t bytes) {
  return {reinterpret_cast<uint64_t>(memory), bytes, MemoryUse::Kind::kRead};
}

}  // namespace

struct DeviceComparer::Report {
  uint64_t done;  // the last piece that was done
  uint64_t began_ns, ended_ns;
  uint64_t results[2];
  uint64_t unused_error;
};

DeviceComparer::DeviceComparer(executor::Device& device, kernels::KernelLibrary& library)
    : device_(device),
      library_(library),
      key_(RandomKey()),
      piece_bytes_(device.properties().kind == "gpu" ? kGpuPiece : kCpuPiece) {
  static_assert(sizeof(Report) <= kWorkspaceAt);
}

DeviceComparer::~DeviceComparer() = default;

absl::Status DeviceComparer::Prepare() {
  if (memory_ == nullptr) {
    ASSIGN_OR_RETURN(memory_, device_.AllocateHost(kWorkspaceAt + kWorkspaceBytes));
  }
  if (queue_ != nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(queue_, device_.CreateQueue(PriorityClass::kInteractive, executor::kDaemon));
  queue_->Watch(&reinterpret_cast<Report*>(memory_->address())->done);
  return absl::OkStatus();
}

// Where the kernels are compiled beside the device's work: on a CPU that would take others' time.
void DeviceComparer::WarmUp() {
  if (device_.properties().kind != "gpu" || !Prepare().ok()) return;
  const std::byte* const unused = memory_->OnDevice(memory_->address() + kWorkspaceAt);
  (void)PlanDigest(unused, piece_bytes_);
  (void)PlanCompare(unused, unused, piece_bytes_);
}

absl::StatusOr<bool> DeviceComparer::StartDigest(const std::byte* memory, uint64_t bytes) {
  const MemoryUse uses[] = {ReadOf(memory, bytes)};
  return Start(PlanDigest(memory, bytes), uses);
}

absl::StatusOr<bool> DeviceComparer::StartCompare(const std::byte* a, const std::byte* b, uint64_t bytes) {
  const MemoryUse uses[] = {ReadOf(a, bytes), ReadOf(b, bytes)};
  return Start(PlanCompare(a, b, bytes), uses);
}

absl::StatusOr<kernels::Readiness> DeviceComparer::PlanDigest(const std::byte* memory, uint64_t bytes) {
  static const ops::Row& row = ops::RowOf("xpud::digest");
  RETURN_IF_ERROR(Prepare());
  Report* const report = memory_->OnDevice(reinterpret_cast<Report*>(memory_->address()));
  const Operand outputs[] = {Integers(&report->results[0], 1), Integers(&report->results[1], 1)};
  const Operand inputs[] = {Integers(memory, bytes / sizeof(uint64_t))};
  const ops::Number key = ops::Number::Integer(static_cast<int64_t>(key_));
  kernels::OpCall call = {.row = &row, .outputs = outputs, .inputs = inputs, .attributes = {&key, 1}};
  return Plan(call);
}

absl::StatusOr<kernels::Readiness> DeviceComparer::PlanCompare(const std::byte* a, const std::byte* b,
                                                               uint64_t bytes) {
  static const ops::Row& row = ops::RowOf("xpud::differences");
  RETURN_IF_ERROR(Prepare());
  Report* const report = memory_->OnDevice(reinterpret_cast<Report*>(memory_->address()));
  const Operand outputs[] = {Integers(&report->results[0], 1)};
  const Operand inputs[] = {Integers(a, bytes / sizeof(uint64_t)), Integers(b, bytes / sizeof(uint64_t))};
  kernels::OpCall call = {.row = &row, .outputs = outputs, .inputs = inputs, .attributes = {}};
  return Plan(call);
}

absl::StatusOr<kernels::Readiness> DeviceComparer::Plan(kernels::OpCall& call) {
  call.compute = ops::DType::kInt64;
  call.error_word = &memory_->OnDevice(reinterpret_cast<Report*>(memory_->address()))->unused_error;
  const auto workspace = [&](size_t bytes) -> absl::StatusOr<void*> {
    if (bytes > kWorkspaceBytes) return absl::ResourceExhaustedError("a digest's workspace is too large");
    return memory_->OnDevice(memory_->address() + kWorkspaceAt);
  };
  return library_.Plan(call, workspace, launches_);
}

absl::StatusOr<bool> DeviceComparer::Start(const absl::StatusOr<kernels::Readiness>& planned,
                                           std::span<const MemoryUse> uses) {
  RETURN_IF_ERROR(planned.status());
  if (*planned != kernels::Readiness::kReady || !queue_->ready()) return false;
  auto* const report = reinterpret_cast<Report*>(memory_->address());
  report->results[0] = report->results[1] = UINT64_MAX;  // not equal, should the kernel write nothing
  const uint64_t began = NowNs();
  RETURN_IF_ERROR(Append(uses));
  if (device_.properties().synchronous) {
    report->began_ns = began;
    report->ended_ns = NowNs();
  }
  return true;
}

absl::Status DeviceComparer::Append(std::span<const MemoryUse> uses) {
  Report* const report = memory_->OnDevice(reinterpret_cast<Report*>(memory_->address()));
  const bool timed = !device_.properties().synchronous;
  if (timed) RETURN_IF_ERROR(queue_->WriteTimestamp(&report->began_ns));
  RETURN_IF_ERROR(queue_->Launch(launches_, uses));
  if (timed) RETURN_IF_ERROR(queue_->WriteTimestamp(&report->ended_ns));
  return queue_->WriteValue(&report->done, ++sequence_);
}

absl::StatusOr<std::optional<Comparer::Result>> DeviceComparer::Poll() {
  auto* const report = reinterpret_cast<Report*>(memory_->address());
  const uint64_t done = std::atomic_ref<uint64_t>(report->done).load(std::memory_order_acquire);
  if (queue_->HasTrouble()) [[unlikely]]
    trouble_.Update(queue_->TakeTrouble().error);
  // Also after an error: the rest of the piece still uses the memory.
  if (done != sequence_) return std::nullopt;
  queue_->Completed(done);
  RETURN_IF_ERROR(trouble_);
  return Result{{report->results[0], report->results[1]}, report->ended_ns - report->began_ns};
}

void DeviceComparer::Reset() {
  queue_ = nullptr;  // before the memory that it writes
  memory_ = nullptr;
  sequence_ = 0;
  trouble_ = absl::OkStatus();
}

}  // namespace xpud::stream
