// Serves the metrics of a program over HTTP on a thread of its own. Takes at most one snapshot of the program
// every kFresh; all readers share its text. A slow reader blocks nobody. There are at most kMaxConnections; a
// new one replaces the oldest. Owned by main.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "daemon/telemetry/connection.h"
#include "daemon/telemetry/endpoint.h"

namespace xpud::telemetry {

class MetricsServer {
 public:
  static constexpr auto kFresh = std::chrono::milliseconds(500);
  static constexpr auto kMaxTime = std::chrono::seconds(10);  // the longest life of a connection
  static constexpr size_t kMaxConnections = 32;
  // Writes a snapshot as text.
  using Text = std::function<std::string(Format)>;
  // Takes a snapshot. Called on the server's thread.
  using Snapshot = std::function<Text()>;

  // The pages are made on the server's thread, too.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(Endpoint endpoint, Snapshot snapshot,
                                                              Connection::Pages pages = {});
  ~MetricsServer();  // REQUIRES: what `snapshot` uses still exists
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

 private:
  using Connections = std::list<Connection>;  // the oldest first

  MetricsServer(Endpoint endpoint, Snapshot snapshot, Connection::Pages pages);
  void Main();
  void Accept();
  void Advance(Connections::iterator connection);
  void DropLate();
  int MillisecondsToWait() const;
  Connection::Body Metrics(Format format);
  bool Watch(int fd, uint32_t events, void* tag, int operation);

  const Endpoint endpoint_;
  const Snapshot snapshot_;
  const Connection::Pages pages_;
  UniqueFd epoll_, stop_;

  // The server's thread only.
  Connections connections_;
  Text latest_;  // null: none was taken
  Connection::Clock::time_point taken_;
  std::array<Connection::Body, 2> texts_;  // text of latest_ by format; null: not written yet

  std::thread thread_;  // last member, so that it is destroyed first
};

}  // namespace xpud::telemetry
