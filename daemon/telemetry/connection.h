// One HTTP connection: a request and its response. REQUIRES: the server's thread. Never blocks. Its memory is
// bounded: a request of at most kMaxRequestBytes, and a response body that connections share.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/telemetry/request.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

class Connection {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::shared_ptr<const std::string>;
  // Returns the metrics in a format.
  using Metrics = std::function<Body(Format)>;
  // A page beside /metrics: plain text, and whether the status is 200 or 503.
  struct Page {
    bool is_well;
    std::string text;
  };
  using Pages = std::map<std::string, std::function<Page()>>;  // by path: "/healthz"

  Connection(UniqueFd socket, Clock::time_point deadline) : socket_(std::move(socket)), deadline_(deadline) {}

  // Makes progress until it would block. Returns false at the end. Call it again when the socket is ready for
  // `events`.
  bool Advance(const Metrics& metrics, const Pages& pages = {});
  uint32_t events() const;  // epoll events to wait for
  int socket() const { return socket_.get(); }
  Clock::time_point deadline() const { return deadline_; }

 private:
  enum class State { kReading, kWriting, kDraining };
  enum class Step { kGoesOn, kWaits, kEnds };

  Step Read(const Metrics& metrics, const Pages& pages);
  Step Write();
  // Reads and drops remaining input: unread data at close would make the peer lose the response.
  Step Drain();
  void Answer(const absl::StatusOr<std::optional<Request>>& request, const Metrics& metrics,
              const Pages& pages);
  void Respond(std::string_view status, std::string_view type, Body body, bool send_body = true);
  void Refuse(std::string_view status, std::string_view why);
  Step After(ssize_t result) const;  // `result` of a system call that transferred nothing

  UniqueFd socket_;
  const Clock::time_point deadline_;
  State state_ = State::kReading;
  std::string request_, head_;
  Body body_;
  size_t sent_ = 0;  // bytes of head_ and body_ that were sent
};

}  // namespace xpud::telemetry
