// Claims, and sessions under them that always have work queued, so that the work done can be compared with
// what the claims were promised. What was completed is read in shared memory: clients need next to no
// processor time, which matters where the daemon computes on the same cores. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/control/xpud.pb.h"
#include "proto/ops/families/matmul.h"
#include "proto/ops/named_call.h"
#include "sdk/client/core.h"
#include "sdk/control/client.h"
#include "tests/bench/rows.h"
#include "xpud/xpud.h"

namespace xpud::bench {

// The daemon under test: $XPUD_ADDRESS.
inline std::string DaemonAddress() {
  const char* const address = std::getenv("XPUD_ADDRESS");
  if (address == nullptr) Need(absl::FailedPreconditionError("XPUD_ADDRESS is not set"));
  return address;
}

// A claim of the daemon, deleted with the object.
class GrantedClaim {
 public:
  explicit GrantedClaim(const v1::Claim& claim) : client_(Take(control::Client::Connect(DaemonAddress()))) {
    claim_ = Take(client_.CreateClaim(claim));
  }
  ~GrantedClaim() { (void)client_.DeleteClaim(claim_.key()); }
  GrantedClaim(const GrantedClaim&) = delete;
  GrantedClaim& operator=(const GrantedClaim&) = delete;

  const std::string& key() const { return claim_.key(); }
  std::string socket() const { return claim_.door() + "/xpud.sock"; }

  void SetTimeMost(uint32_t hundredths) {
    v1::UpdateClaimRequest request;
    request.mutable_claim()->set_key(key());
    request.mutable_claim()->set_time_most(hundredths);
    request.mutable_update_mask()->add_paths("time_most");
    claim_ = Take(client_.UpdateClaim(request));
  }

  struct DeviceTime {
    uint64_t now_ns = 0, busy_ns = 0;
  };
  // What the daemon has charged so far.
  DeviceTime Charged() {
    const v1::ListClaimsResponse all = Take(client_.ListClaims());
    for (const v1::Claim& each : all.claims())
      if (each.key() == key()) return {all.time_ns(), each.busy_ns()};
    Need(absl::NotFoundError(key()));
    return {};
  }

 private:
  control::Client client_;
  v1::Claim claim_;
};

// What all sessions of a benchmark compute, the same again and again. Products in bfloat16 are for GPUs. On a
// CPU a product is slower where another session's operands are in the caches, and who has more sessions finds
// them there more often; sums of an expanded tensor need no caches, so they show what the scheduler does.
struct Work {
  enum class Kind { kProducts, kSums };
  Kind kind = Kind::kProducts;
  int64_t size = 0;  // the side of the operands, or the length of the rows

  std::string Describe() const {
    return kind == Kind::kProducts ? absl::StrCat("products of ", size, " x ", size)
                                   : absl::StrCat("sums of ", kRows, " rows of ", size);
  }
  static constexpr int64_t kRows = 64;
};

// A session that has work queued.
class BusySession {
 public:
  static constexpr uint64_t kQueued = 512;

  BusySession(const std::string& socket, const Work& work)
      : session_(Connect(socket)),
        queue_(session_->DefaultQueue(0)),
        device_(Take(queue_.core().Open(0))),
        kind_(work.kind),
        dtype_(on_gpu() ? ops::DType::kBFloat16 : ops::DType::kFloat32),
        operand_sizes_{kind_ == Work::Kind::kSums ? Work::kRows : work.size, work.size},
        result_sizes_{operand_sizes_[0], kind_ == Work::Kind::kSums ? 1 : work.size} {
    const bool expanded = kind_ == Work::Kind::kSums;
    const auto bytes = ops::SizeOf(dtype_) * static_cast<size_t>(expanded ? 1 : work.size * work.size);
    for (Buffer* const buffer : {&a_, &b_}) {
      *buffer = Take(queue_.Allocate(bytes));
      Need(queue_.Upload(std::vector<std::byte>(bytes), buffer->handle(), 0));
    }
    result_ =
        Take(queue_.Allocate(ops::SizeOf(dtype_) * static_cast<size_t>(result_sizes_[0] * result_sizes_[1])));
    Submit();
    Need(queue_.Synchronize());  // the kernel is compiled
    next_ = device_->LastSequence(queue_.id()) + 1;
    submitted_ = 0;
  }

  // Ensures that so many commands are queued.
  void Fill() {
    while (submitted_ < Completed() + kQueued) Submit();
  }
  // How many commands were completed since the session began.
  uint64_t Completed() {
    for (; completed_ < submitted_ && device_->IsComplete(queue_.id(), next_); ++next_) ++completed_;
    return completed_;
  }
  bool on_gpu() const { return session_->devices()[0].kind == "gpu"; }
  // How long a command takes while nobody else uses the device.
  int64_t MeasureNs() {
    constexpr int kCommands = 16;
    const int64_t began = NowNs();
    for (int i = 0; i < kCommands; ++i) Submit();
    Need(queue_.Synchronize());
    return (NowNs() - began) / kCommands;
  }

 private:
  static std::unique_ptr<Session> Connect(const std::string& socket) {
    ConnectOptions options;
    options.address = socket;
    options.client_name = "busy";
    options.start_daemon = false;
    return Take(Session::Connect(options));
  }
  TensorRef Ref(const Buffer& buffer, const int64_t (&sizes)[2], const int64_t* strides = nullptr) const {
    TensorRef tensor;
    tensor.kind = TensorRef::Kind::kTensor;
    tensor.dtype = dtype_;
    tensor.rank = 2;
    tensor.buffer = buffer.handle();
    tensor.sizes = sizes;
    tensor.strides = strides;
    return tensor;
  }
  void Submit() {
    kind_ == Work::Kind::kSums ? SubmitSum() : SubmitProduct();
    ++submitted_;
  }
  void SubmitSum() {
    static constexpr int64_t kExpanded[2] = {0, 0};
    const TensorRef result = Ref(result_, result_sizes_), input = Ref(a_, operand_sizes_, kExpanded);
    Need(queue_.Execute({&ops::RowOf("sum"), dtype_, {&result, 1}, {&input, 1}, {}}));
  }
  void SubmitProduct() {
    const ops::MatmulCall<TensorRef> call{.out = Ref(result_, result_sizes_),
                                          .a = Ref(a_, operand_sizes_),
                                          .b = Ref(b_, operand_sizes_),
                                          .beta = 0};
    Need(queue_.Execute(ops::NamedOpCall<ops::MatmulCall>(call).Of(ops::RowOf("mm"), dtype_)));
  }

  const std::unique_ptr<Session> session_;
  const Queue queue_;
  client::DeviceSession* const device_;
  const Work::Kind kind_;
  const ops::DType dtype_;
  const int64_t operand_sizes_[2], result_sizes_[2];
  Buffer a_, b_, result_;
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t next_ = 0;  // the sequence of the command after the completed ones
};

// Whether the daemon's device is a GPU.
inline bool OnGpu() {
  ConnectOptions options;
  options.start_daemon = false;
  return Take(Session::Connect(options))->devices()[0].kind == "gpu";
}

// Returns the smallest work of the kind that takes 0.2 ms on an idle device.
inline Work SmallestWork(Work::Kind kind) {
  constexpr int64_t kMinNs = 200'000, kStep = 128;
  for (Work work{.kind = kind, .size = kStep};; work.size += work.size < 1024 ? kStep : work.size / 2) {
    BusySession session(DaemonAddress(), work);
    (void)session.MeasureNs();
    const int64_t took = session.MeasureNs();
    if (took < kMinNs) continue;
    std::printf("  %s, %.2f ms each\n", work.Describe().c_str(), static_cast<double>(took) / 1e6);
    return work;
  }
}

// Keeps all sessions filled until the time of NowNs().
inline void FillUntil(const std::vector<std::unique_ptr<BusySession>>& sessions, int64_t until_ns) {
  constexpr std::chrono::nanoseconds kPause = std::chrono::milliseconds(50);
  for (int64_t left; (left = until_ns - NowNs()) > 0;) {
    for (const auto& session : sessions) session->Fill();
    std::this_thread::sleep_for(std::min(kPause, std::chrono::nanoseconds(left)));
  }
}

}  // namespace xpud::bench
