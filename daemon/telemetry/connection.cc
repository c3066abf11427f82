#include "daemon/telemetry/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace xpud::telemetry {
namespace {

constexpr std::string_view kPlain = "text/plain; charset=utf-8";

}  // namespace

uint32_t Connection::events() const { return state_ == State::kWriting ? EPOLLOUT : EPOLLIN; }

bool Connection::Advance(const Metrics& metrics, const Pages& pages) {
  while (true) {
    const Step step = state_ == State::kReading   ? Read(metrics, pages)
                      : state_ == State::kWriting ? Write()
                                                  : Drain();
    if (step != Step::kGoesOn) return step == Step::kWaits;
  }
}

Connection::Step Connection::After(ssize_t result) const {
  if (result < 0 && errno == EINTR) return Step::kGoesOn;
  return result < 0 && errno == EAGAIN ? Step::kWaits : Step::kEnds;
}

Connection::Step Connection::Read(const Metrics& metrics, const Pages& pages) {
  std::array<char, 2048> bytes;
  const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) return After(count);
  request_.append(bytes.data(), static_cast<size_t>(count));
  const auto request = ParseRequest(request_);
  if (!request.ok() || request->has_value()) Answer(request, metrics, pages);
  return Step::kGoesOn;
}

void Connection::Answer(const absl::StatusOr<std::optional<Request>>& request, const Metrics& metrics,
                        const Pages& pages) {
  if (!request.ok()) {
    return Refuse(
        absl::IsOutOfRange(request.status()) ? "431 Request Header Fields Too Large" : "400 Bad Request",
        std::string(request.status().message()));
  }
  const Request& asked = **request;
  if (asked.method != "GET" && asked.method != "HEAD")
    return Refuse("405 Method Not Allowed\r\nAllow: GET, HEAD", "use GET");
  if (const auto found = pages.find(asked.path); found != pages.end()) {
    Page page = found->second();
    return Respond(page.is_well ? "200 OK" : "503 Service Unavailable", kPlain,
                   std::make_shared<const std::string>(std::move(page.text)), asked.method == "GET");
  }
  if (asked.path != "/metrics") return Refuse("404 Not Found", "the metrics are at /metrics");
  Respond("200 OK", ContentType(asked.format), metrics(asked.format), asked.method == "GET");
}

void Connection::Refuse(std::string_view status, std::string_view why) {
  Respond(status, kPlain, std::make_shared<const std::string>(std::string(why) + "\n"));
}

void Connection::Respond(std::string_view status, std::string_view type, Body body, bool send_body) {
  const std::string length = std::to_string(body->size());
  const std::array<std::string_view, 7> parts = {
      "HTTP/1.1 ",
      status,
      "\r\nContent-Type: ",
      type,
      "\r\nContent-Length: ",
      length,
      "\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\r\n"};
  for (const std::string_view part : parts) head_ += part;
  if (send_body) body_ = std::move(body);
  state_ = State::kWriting;
}

Connection::Step Connection::Write() {
  const std::string_view body = body_ == nullptr ? std::string_view() : *body_;
  std::string_view rest = sent_ < head_.size() ? head_ : body;
  rest.remove_prefix(sent_ < head_.size() ? sent_ : sent_ - head_.size());
  if (rest.empty()) {
    shutdown(socket_.get(), SHUT_WR);
    body_.reset();
    state_ = State::kDraining;
    return Step::kGoesOn;
  }
  const ssize_t count = send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (count <= 0) return After(count);
  sent_ += static_cast<size_t>(count);
  return Step::kGoesOn;
}

// Reads once per call: a client that sends without end does not block others, and reaches its deadline.
Connection::Step Connection::Drain() {
  std::array<char, 2048> bytes;
  const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  return count > 0 ? Step::kWaits : After(count);
}

}  // namespace xpud::telemetry
