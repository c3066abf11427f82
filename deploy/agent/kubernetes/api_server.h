// The API server of Kubernetes, over HTTPS, with the token and the CA of a service account. Thread-safe;
// connections are kept for later requests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/kubernetes/interrupt.h"
#include "deploy/agent/kubernetes/json.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class ApiServer {
 public:
  struct Options {
    std::string url;         // "https://HOST:PORT"
    std::string token_file;  // read for each request, since tokens expire
    std::string ca_file;     // what the server's certificate must be signed by
  };
  // The URL that Kubernetes tells a pod. Returns FailedPrecondition outside a pod.
  static absl::StatusOr<std::string> UrlInCluster();

  // Does not connect. `counters` and `conditions` must outlive it; the condition "api-server" says whether
  // the last request was answered. Returns InvalidArgument if the URL does not begin with https://.
  static absl::StatusOr<std::unique_ptr<ApiServer>> Create(Options options, Counters& counters,
                                                           Conditions& conditions);
  ~ApiServer();

  // Each returns the object that the server answers with, within 10 s. Errors, with the server's reason:
  // NotFound (404), AlreadyExists and Aborted (409: it exists, or it has changed meanwhile), Unauthenticated
  // (401), PermissionDenied (403), OutOfRange (410), InvalidArgument (400, 422), Unavailable (429, 500 to
  // 599, or no answer), ResourceExhausted (an answer above 4 MiB), Internal (an answer that is not JSON),
  // Unknown (others). `path` begins with '/' and is a URL's, query included.
  absl::StatusOr<Json> Get(const std::string& path);
  absl::StatusOr<Json> Post(const std::string& path, const Json& object);
  absl::StatusOr<Json> Put(const std::string& path, const Json& object);
  absl::StatusOr<Json> Delete(const std::string& path);

  // Calls `on_event` with {type, object} for each event, on the caller's thread, until it returns false.
  // `path` is a list with watch=1 and timeoutSeconds of at most 300: a watch that the server has not ended
  // after 400 s is Unavailable. Returns OK if `on_event` or the server has ended the watch, Cancelled if
  // `interrupt` is raised, OutOfRange if the version is too old, and errors as above. An ERROR event ends it
  // with its status.
  absl::Status Watch(const std::string& path, absl::FunctionRef<bool(const Json& event)> on_event,
                     const Interrupt& interrupt);

 private:
  class Connection;
  struct Request;

  ApiServer(Options options, Counters& counters, Conditions& conditions);
  absl::StatusOr<Json> Call(const Request& request);
  std::unique_ptr<Connection> Take();
  void Return(std::unique_ptr<Connection> connection);
  // Sets the condition and counts.
  void Record(int code, const absl::Status& status);

  const Options options_;
  Counters& counters_;
  Conditions& conditions_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent::kubernetes
