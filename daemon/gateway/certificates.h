// The gateway's certificate, its key and the certificates that sign those of clients, which can be replaced
// while the gateway serves. One thread, but for Ends; the credentials are for any thread.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::remote {

class Certificates {
 public:
  struct Paths {
    std::string certificate, key, client_authority;  // PEM; client_authority may be empty
  };

  // Returns InvalidArgument if a file has no certificate or key, or if the key is not the certificate's, and
  // errors of reading.
  static absl::StatusOr<std::unique_ptr<Certificates>> Load(Paths paths);
  Certificates(const Certificates&) = delete;
  Certificates& operator=(const Certificates&) = delete;

  // For servers; they follow each Reload within seconds. Connections go on with what they began with.
  std::shared_ptr<grpc::ServerCredentials> ServerCredentials() const;
  // Reads the files again. On an error nothing changes.
  absl::Status Reload();
  // When each certificate ends, by its file's path. Thread-safe.
  std::map<std::string, absl::Time> Ends() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Logs an error for each certificate that has expired, and a warning for each that expires within kSoon.
  void LogExpiry() const;

  static constexpr absl::Duration kSoon = absl::Hours(14 * 24);

 private:
  explicit Certificates(Paths paths) : paths_(std::move(paths)) {}

  const Paths paths_;
  // gRPC rereads files at intervals, and would take a file that is being written. So it gets copies of what
  // was checked, in memory.
  UniqueFd certificate_, key_, client_authority_;
  mutable Mutex mutex_;
  std::map<std::string, absl::Time> ends_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::remote
