// Claims and sessions under them that always have products queued, so that work done can be compared with what
// the claims were promised. A session is written to straight through its ring, and its completed products are
// read in shared memory: clients need next to no processor time, which matters where the daemon computes on
// the same cores. Not thread-safe.
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
  explicit GrantedClaim(v1::Claim claim) : client_(Take(control::Client::Connect(DaemonAddress()))) {
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

// A session that has products queued. All sessions of a benchmark compute the same one: `side` x `side`, in
// bfloat16 on a GPU and else in float32.
class ProductSession {
 public:
  static constexpr uint64_t kQueued = 256;

  ProductSession(const std::string& socket, int64_t side)
      : session_(Connect(socket)), queue_(session_->DefaultQueue(0)), sizes_{side, side} {
    const auto bytes = static_cast<uint64_t>(side * side) * ops::SizeOf(dtype());
    for (Buffer& buffer : buffers_) {
      buffer = Take(queue_.Allocate(bytes));
      const std::vector<std::byte> zeros(bytes);
      Need(queue_.Upload(zeros, buffer.handle(), 0));
    }
    device_ = Take(queue_.core().Open(0));
    Submit();
    Need(queue_.Synchronize());  // the kernel is compiled
    next_ = device_->LastSequence(queue_.id()) + 1;
    submitted_ = completed_ = 0;
  }

  // Sees to it that so many products are queued.
  void Fill() {
    while (submitted_ < Completed() + kQueued) Submit();
  }
  // How many products were completed since the session began.
  uint64_t Completed() {
    for (; completed_ < submitted_ && device_->IsComplete(queue_.id(), next_); ++next_) ++completed_;
    return completed_;
  }
  bool on_gpu() const { return session_->devices()[0].kind == "gpu"; }
  // How long a product takes while nobody else uses the device.
  int64_t MeasureNs() {
    constexpr int kProducts = 16;
    const int64_t began = NowNs();
    for (int i = 0; i < kProducts; ++i) Submit();
    Need(queue_.Synchronize());
    return (NowNs() - began) / kProducts;
  }

 private:
  static std::unique_ptr<Session> Connect(const std::string& socket) {
    ConnectOptions options;
    options.address = socket;
    options.client_name = "products";
    options.start_daemon = false;
    return Take(Session::Connect(options));
  }
  ops::DType dtype() const { return on_gpu() ? ops::DType::kBFloat16 : ops::DType::kFloat32; }
  TensorRef Ref(const Buffer& buffer) const {
    TensorRef tensor;
    tensor.kind = TensorRef::Kind::kTensor;
    tensor.dtype = dtype();
    tensor.rank = 2;
    tensor.buffer = buffer.handle();
    tensor.sizes = sizes_;
    return tensor;
  }
  void Submit() {
    static const ops::Row& row = ops::RowOf("mm");
    const ops::MatmulCall<TensorRef> call{
        .out = Ref(buffers_[2]), .a = Ref(buffers_[0]), .b = Ref(buffers_[1]), .beta = 0};
    Need(queue_.Execute(ops::NamedOpCall<ops::MatmulCall>(call).Of(row, dtype())));
    ++submitted_;
  }

  const std::unique_ptr<Session> session_;
  const Queue queue_;
  const int64_t sizes_[2];
  Buffer buffers_[3];
  client::DeviceSession* device_ = nullptr;
  uint64_t submitted_ = 0, completed_ = 0;
  uint64_t next_ = 0;  // the sequence of the product after the completed ones
};

// Returns the side of the smallest product that takes 0.3 ms on an idle device.
inline int64_t SideOfProducts() {
  constexpr int64_t kLeastNs = 300'000;
  for (const int64_t side : {128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144}) {
    ProductSession session(DaemonAddress(), side);
    (void)session.MeasureNs();
    const int64_t took = session.MeasureNs();
    if (took < kLeastNs) continue;
    std::printf("  products of %ld x %ld, %.2f ms each\n", side, side, static_cast<double>(took) / 1e6);
    return side;
  }
  return 8192;
}

// Keeps all sessions filled until the time of NowNs().
inline void FillUntil(const std::vector<std::unique_ptr<ProductSession>>& sessions, int64_t until_ns) {
  constexpr std::chrono::nanoseconds kPause = std::chrono::milliseconds(10);
  for (int64_t left; (left = until_ns - NowNs()) > 0;) {
    for (const auto& session : sessions) session->Fill();
    std::this_thread::sleep_for(std::min(kPause, std::chrono::nanoseconds(left)));
  }
}

}  // namespace xpud::bench
