#include "deploy/agent/kubernetes/api_server.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr long kConnectTimeoutMs = 5'000;
constexpr long kRequestTimeoutMs = 10'000;
constexpr long kWatchTimeoutMs = 400'000;
constexpr long kIdleWatchS = 60;  // without a byte, TCP asks whether the server is there
constexpr size_t kMaxIdle = 16;
constexpr size_t kMaxToken = size_t{64} << 10;
constexpr size_t kMaxReason = 400;
// How often a watch looks at what curl does by itself, such as timeouts.
constexpr int kPollMs = 10'000;

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Headers = std::unique_ptr<curl_slist, FreeList>;

void StartCurl() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  XPUD_CHECK(started == CURLE_OK);
}

void AddHeader(Headers& headers, const std::string& line) {
  curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
  XPUD_CHECK(longer != nullptr);
  headers.release();  // NOLINT(bugprone-unused-return-value): it is part of the longer list
  headers.reset(longer);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid())
    return absl::UnavailableError(absl::StrCat("cannot open the token file ", path, ": ", strerror(errno)));
  std::string token(kMaxToken, '\0');
  const ssize_t length = read(fd.get(), token.data(), token.size());
  if (length < 0)
    return absl::UnavailableError(absl::StrCat("cannot read the token file ", path, ": ", strerror(errno)));
  token.resize(static_cast<size_t>(length));
  absl::StripAsciiWhitespace(&token);
  const bool graphic =
      std::ranges::all_of(token, [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
  if (token.empty() || token.size() == kMaxToken || !graphic)
    return absl::UnavailableError(absl::StrCat("the file ", path, " has no token"));
  return token;
}

absl::StatusCode CodeOf(long http, std::string_view reason) {
  switch (http) {
    case 400:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kUnavailable;
    default:
      return http >= 500 && http <= 599 ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnknown;
  }
}

// `status`: a Status object of Kubernetes, or whatever the server has answered with.
absl::Status StatusOf(long http, const Json& status) {
  const std::string_view message = TextMember(status, "message");
  return {CodeOf(http, TextMember(status, "reason")),
          absl::StrCat("the API server answered ", http, message.empty() ? "" : ": ",
                       PrintableText(message, kMaxReason))};
}

absl::Status StatusOfEvent(const Json& status) {
  const Json& code = Member(status, "code");
  return StatusOf(code.is_number_unsigned() ? static_cast<long>(code.get<uint16_t>()) : 500, status);
}

}  // namespace

struct ApiServer::Request {
  const char* method;
  const std::string& path;
  std::string body;
};

// A handle of libcurl, with the connection that it has made. Not thread-safe.
class ApiServer::Connection {
 public:
  Connection() : easy_(curl_easy_init()) { XPUD_CHECK(easy_ != nullptr); }
  ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  CURL* easy() const { return easy_.get(); }
  long code() const {
    long code = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &code);
    return code;
  }

  // Prepares a request. `request` must outlive it.
  absl::Status Prepare(const Options& options, const Request& request) {
    ASSIGN_OR_RETURN(token_, ReadToken(options.token_file));
    curl_easy_reset(easy_.get());  // keeps the connection
    text_.clear();
    too_long_ = false;
    error_[0] = '\0';
    const std::string url = options.url + request.path;
    Set(CURLOPT_URL, url.c_str());
    SetServer(options);
    SetBody(request);
    Set(CURLOPT_WRITEFUNCTION, &Connection::OnBytes);
    Set(CURLOPT_WRITEDATA, this);
    Set(CURLOPT_ERRORBUFFER, error_);
    Set(CURLOPT_NOSIGNAL, 1L);
    return absl::OkStatus();
  }
  template <typename T>
  void Set(CURLoption option, T value) {
    XPUD_CHECK(curl_easy_setopt(easy_.get(), option, value) == CURLE_OK);
  }

  // What the server has sent and nobody has taken.
  std::string& text() { return text_; }

  // Why there was no answer. Says nothing of the token.
  absl::Status ErrorOf(CURLcode code, const Options& options) const {
    if (too_long_)
      return absl::ResourceExhaustedError(absl::StrCat("an answer of more than ", kMaxJsonBytes, " bytes"));
    const std::string detail =
        PrintableText(error_[0] != '\0' ? std::string_view(error_) : curl_easy_strerror(code), kMaxReason);
    if (code == CURLE_PEER_FAILED_VERIFICATION) {
      return absl::UnavailableError(absl::StrCat("the certificate of ", options.url,
                                                 " is not for this host or is not", " signed by ",
                                                 options.ca_file, ": ", detail));
    }
    if (code == CURLE_SSL_CACERT_BADFILE)
      return absl::UnavailableError(absl::StrCat("cannot use the CA file ", options.ca_file, ": ", detail));
    return absl::UnavailableError(absl::StrCat("no answer from ", options.url, ": ", detail));
  }

  // The status of an answer, or of none. The server's words must not have the token either.
  absl::Status Redacted(const absl::Status& status) const {
    if (!absl::StrContains(status.message(), token_)) return status;
    return {status.code(), absl::StrReplaceAll(status.message(), {{token_, "(token)"}})};
  }

 private:
  void SetServer(const Options& options) {
    Set(CURLOPT_PROTOCOLS_STR, "https");
    Set(CURLOPT_PROXY, "");
    Set(CURLOPT_NOPROXY, "*");
    Set(CURLOPT_FOLLOWLOCATION, 0L);
    Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
    Set(CURLOPT_SSL_VERIFYPEER, 1L);
    Set(CURLOPT_SSL_VERIFYHOST, 2L);
    Set(CURLOPT_CAINFO, options.ca_file.c_str());
    Set<const char*>(CURLOPT_CAPATH, nullptr);  // not the system's authorities
    Set(CURLOPT_CA_CACHE_TIMEOUT, 0L);          // the CA may be replaced
    Set(CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
    Set(CURLOPT_TIMEOUT_MS, kRequestTimeoutMs);
    Set(CURLOPT_TCP_KEEPALIVE, 1L);
    Set(CURLOPT_TCP_KEEPIDLE, kIdleWatchS);
    Set(CURLOPT_TCP_KEEPINTVL, 10L);
    Set(CURLOPT_MAXCONNECTS, 1L);
  }
  void SetBody(const Request& request) {
    headers_.reset();
    AddHeader(headers_, "Authorization: Bearer " + token_);
    AddHeader(headers_, "Accept: application/json");
    if (!request.body.empty()) {
      AddHeader(headers_, "Content-Type: application/json");
      AddHeader(headers_, "Expect:");  // no round trip before the body
      Set(CURLOPT_POSTFIELDS, request.body.c_str());
      Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    }
    Set(CURLOPT_CUSTOMREQUEST, request.method);
    Set(CURLOPT_HTTPHEADER, headers_.get());
    Set(CURLOPT_USERAGENT, "xpud-node-agent/" XPUD_VERSION);
  }
  static size_t OnBytes(const char* bytes, size_t one, size_t count, void* self) {
    auto* connection = static_cast<Connection*>(self);
    if (count > kMaxJsonBytes - connection->text_.size()) {
      connection->too_long_ = true;
      return CURL_WRITEFUNC_ERROR;
    }
    connection->text_.append(bytes, one * count);
    return count;
  }

  const std::unique_ptr<CURL, FreeEasy> easy_;
  std::string token_;
  Headers headers_;
  std::string text_;
  bool too_long_ = false;
  char error_[CURL_ERROR_SIZE] = {};
};

absl::StatusOr<std::string> ApiServer::UrlInCluster() {
  const char* const host = getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr || *host == '\0' || *port == '\0') {
    return absl::FailedPreconditionError(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: outside a pod, name the API "
        "server");
  }
  const bool ipv6 = absl::StrContains(host, ':');
  return absl::StrCat("https://", ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
}

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Create(Options options, Counters& counters,
                                                             Conditions& conditions) {
  if (!options.url.starts_with("https://")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the API server's address \"", PrintableText(options.url, 80), "\" does not begin with https://"));
  }
  while (options.url.ends_with('/')) options.url.pop_back();
  StartCurl();
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(options), counters, conditions));
}

ApiServer::ApiServer(Options options, Counters& counters, Conditions& conditions)
    : options_(std::move(options)), counters_(counters), conditions_(conditions) {}
ApiServer::~ApiServer() = default;

std::unique_ptr<ApiServer::Connection> ApiServer::Take() {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Connection> connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>();
}

void ApiServer::Return(std::unique_ptr<Connection> connection) {
  const MutexLock lock(mutex_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

void ApiServer::Record(int code, const absl::Status& status) {
  counters_.AddRequest("kubernetes", code);
  const bool answered = code != 0 && code != 401 && code != 429 && code < 500;
  if (code == 401) {
    conditions_.Set("api-server",
                    absl::UnauthenticatedError(absl::StrCat("the token of ", options_.token_file,
                                                            " has expired or is wrong: ", status.message())));
  } else {
    conditions_.Set("api-server", answered ? absl::OkStatus() : status);
  }
}

absl::StatusOr<Json> ApiServer::Call(const Request& request) {
  std::unique_ptr<Connection> connection = Take();
  absl::Status status = connection->Prepare(options_, request);
  int code = 0;
  Json answer;
  if (status.ok()) {
    const CURLcode done = curl_easy_perform(connection->easy());
    if (done != CURLE_OK) {
      status = connection->ErrorOf(done, options_);
    } else {
      code = static_cast<int>(connection->code());
      absl::StatusOr<Json> parsed = ParseJson(connection->text());
      if (code < 200 || code > 299)
        status = StatusOf(code, parsed.ok() ? *parsed : Json());
      else if (parsed.ok())
        answer = *std::move(parsed);
      else
        status =
            absl::InternalError(absl::StrCat("an answer of the API server: ", parsed.status().message()));
    }
    status = connection->Redacted(status);
  }
  Record(code, status);
  Return(std::move(connection));
  if (!status.ok()) return status;
  return answer;
}

absl::StatusOr<Json> ApiServer::Get(const std::string& path) { return Call({"GET", path, ""}); }
absl::StatusOr<Json> ApiServer::Post(const std::string& path, const Json& object) {
  return Call({"POST", path, JsonText(object)});
}
absl::StatusOr<Json> ApiServer::Put(const std::string& path, const Json& object) {
  return Call({"PUT", path, JsonText(object)});
}
absl::StatusOr<Json> ApiServer::Delete(const std::string& path) { return Call({"DELETE", path, ""}); }

namespace {

// Takes whole lines from the front of `text` and calls `on_event` with each. Returns whether the watch goes
// on.
absl::StatusOr<bool> TakeEvents(std::string& text, absl::FunctionRef<bool(const Json&)> on_event) {
  size_t begin = 0;
  bool more = true;
  for (size_t end; more && (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.empty()) continue;
    const absl::StatusOr<Json> event = ParseJson(line);
    if (!event.ok()) return absl::InternalError(absl::StrCat("an event: ", event.status().message()));
    if (TextMember(*event, "type") == "ERROR") return StatusOfEvent(Member(*event, "object"));
    more = on_event(*event);
  }
  text.erase(0, begin);
  return more;
}

// A transfer that is driven step by step. Ends with the object.
class Transfer {
 public:
  explicit Transfer(CURL* easy) : multi_(curl_multi_init()), easy_(easy) {
    XPUD_CHECK(multi_ != nullptr && curl_multi_add_handle(multi_.get(), easy) == CURLM_OK);
  }
  ~Transfer() { curl_multi_remove_handle(multi_.get(), easy_); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Does what can be done without waiting. Returns the result if the transfer has ended.
  std::optional<CURLcode> Step() {
    int running = 0;
    if (curl_multi_perform(multi_.get(), &running) != CURLM_OK) return CURLE_FAILED_INIT;
    if (running != 0) return std::nullopt;
    int left = 0;
    const CURLMsg* message = curl_multi_info_read(multi_.get(), &left);
    return message == nullptr ? CURLE_OK : message->data.result;
  }
  // Waits for the server or the interrupt. Returns false if it is raised.
  bool Wait(const Interrupt& interrupt) {
    curl_waitfd raised{.fd = interrupt.fd(), .events = CURL_WAIT_POLLIN, .revents = 0};
    curl_multi_poll(multi_.get(), &raised, 1, kPollMs, nullptr);
    return raised.revents == 0;
  }

 private:
  const std::unique_ptr<CURLM, FreeMulti> multi_;
  CURL* const easy_;
};

}  // namespace

absl::Status ApiServer::Watch(const std::string& path, absl::FunctionRef<bool(const Json& event)> on_event,
                              const Interrupt& interrupt) {
  Connection connection;
  const Request request{"GET", path, ""};
  if (absl::Status status = connection.Prepare(options_, request); !status.ok()) {
    Record(0, status);
    return status;
  }
  connection.Set(CURLOPT_TIMEOUT_MS, kWatchTimeoutMs);
  Transfer transfer(connection.easy());
  std::optional<CURLcode> done;
  absl::Status status;
  bool raised = false, more = true;
  while (!done && !raised && more && status.ok()) {
    done = transfer.Step();
    if (connection.code() == 200) {
      absl::StatusOr<bool> taken = TakeEvents(connection.text(), on_event);
      status = taken.status();
      more = taken.value_or(false);
    }
    if (!done && more) raised = !transfer.Wait(interrupt);
  }
  const int code = static_cast<int>(connection.code());
  if (done && status.ok() && more) {
    if (*done != CURLE_OK) {
      status = connection.ErrorOf(*done, options_);
    } else if (code != 200) {
      const absl::StatusOr<Json> answer = ParseJson(connection.text());
      status = StatusOf(code, answer.ok() ? *answer : Json());
    }
  }
  status = connection.Redacted(status);
  if (!raised || code != 0) Record(code, status);
  return raised && status.ok() ? absl::CancelledError("the watch was interrupted") : status;
}

}  // namespace xpud::agent::kubernetes
