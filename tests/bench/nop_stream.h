// A session reduced to its ring: no-ops on queue 0, each published alone and written under a lock, as in the
// client library. Thread-safe.
#pragma once

#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "proto/base/mutex.h"
#include "proto/wire/encode.h"
#include "sdk/client/connect.h"
#include "tests/bench/rows.h"

namespace xpud::bench {

class NopStream {
 public:
  explicit NopStream(const ConnectOptions& options) : connection_(Connect(options)) {
    auto transport = client::OpenDevice(connection_, 0);
    Need(transport.status());
    transport_ = *std::move(transport);
  }

  const std::string& address() const { return connection_.address; }

  // Publishes one no-op; waits if the ring is full. Returns its sequence.
  uint64_t Publish() {
    MutexLock lock(mutex_);
    std::byte* space;
    while ((space = transport().Reserve(sizeof(wire::NopCommand))) == nullptr) {
      Need(transport().status());
      std::this_thread::yield();
    }
    const wire::NopCommand command = {wire::Header(wire::CommandKind::kNop, 0, sizeof(wire::NopCommand))};
    std::memcpy(space, &command, sizeof(command));
    transport().Commit(sizeof(command));
    transport().Publish();
    return ++sequence_;
  }

  void Await(uint64_t sequence) {
    Need(transport().Wait([&] { return transport().Completed(0) >= sequence; }, {}));
  }

  void RoundTrip() { Await(Publish()); }

 private:
  static client::Connection Connect(const ConnectOptions& options) {
    auto connection = client::Connect(options);
    Need(connection.status());
    return *std::move(connection);
  }
  transport::ClientTransport& transport() { return *transport_; }

  client::Connection connection_;
  std::unique_ptr<transport::ClientTransport> transport_;
  Mutex mutex_;
  uint64_t sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace xpud::bench
