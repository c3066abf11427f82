// The control plane: answers xpuctl over gRPC on a unix socket beside the clients' one. Its threads read the
// engine's state with Engine::Call and keep nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduler/engine.h"
#include "daemon/service/acceptor.h"
#include "daemon/telemetry/log_ring.h"
#include "proto/base/unique_fd.h"

namespace xpud::v1 {
class GetStatusResponse;
}

namespace xpud::service {

// A key of the configuration that is in force.
struct ConfigValue {
  std::string key, value;
  std::string origin;   // "default", "command line", "FILE:LINE:COLUMN"
  bool live = false;    // a reload changes it
  std::string pending;  // what the file says since, for the next start; empty: nothing else
};

class Control {
 public:
  struct Options {
    std::string client_socket;  // what clients connect to; control.sock lies beside it
    bool private_daemon = false;
    std::function<std::vector<ConfigValue>()> configuration = {};  // any thread
    std::shared_ptr<telemetry::LogLines> log = nullptr;
  };
  // At `handed` where that is valid, which stays there; otherwise at a socket that it makes and removes.
  static absl::StatusOr<std::unique_ptr<Control>> Start(scheduler::Engine& engine, Options options,
                                                        UniqueFd handed = {});
  ~Control();  // refuses new calls and ends those under way
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Any thread but the engine's: what GetStatus answers.
  void TakeSnapshot(v1::GetStatusResponse& out);

 private:
  class Service;
  Control();
  std::unique_ptr<Service> service_;
  struct Server;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // at a socket that was handed over
  std::string path_;                    // of one that is ours to remove
};

}  // namespace xpud::service
