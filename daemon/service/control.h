// The control plane: answers xpuctl over gRPC on a unix socket beside the clients' socket. Its threads visit
// the lanes one after the other (Lane::Call), add up what they read, and keep none of it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/compiler/compile_desk.h"
#include "daemon/lane/lanes.h"
#include "daemon/service/acceptor.h"
#include "daemon/service/claim_desk.h"
#include "daemon/service/sensor_sampler.h"
#include "daemon/telemetry/log_ring.h"
#include "proto/base/unique_fd.h"
#include "proto/control/xpud.grpc.pb.h"

namespace xpud::service {

// A configuration key and the value in force.
struct ConfigValue {
  std::string key, value;
  std::string origin;   // "default", "command line", "FILE:LINE:COLUMN"
  bool live = false;    // a reload changes it
  std::string pending;  // the file's new value, which takes effect at the next start; empty: none
};

class Control {
 public:
  struct Options {
    std::string client_socket;         // the clients' socket; control.sock is in the same folder
    SensorSampler* sensors = nullptr;  // not null; outlives this, as the desk
    ClaimDesk* claims = nullptr;       // not null
    const compiler::CompileDesk* compiles = nullptr;  // null: clients' kernels are compiled here
    bool private_daemon = false;
    std::string cache_directory = {};                              // empty: no cache
    std::function<std::vector<ConfigValue>()> configuration = {};  // thread-safe
    std::shared_ptr<telemetry::LogLines> log = nullptr;
  };
  // Serves on `handed` if that is valid; its file stays. Otherwise creates a socket, and removes it in the
  // end.
  static absl::StatusOr<std::unique_ptr<Control>> Start(lane::Lanes& lanes, Options options,
                                                        UniqueFd handed = {});
  ~Control();  // refuses new calls and ends those in progress
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Fills the reply of GetStatus. REQUIRES: not a lane's thread.
  void TakeSnapshot(v1::GetStatusResponse& out);
  // Answers what operators may ask. Thread-safe.
  v1::Control::Service& service();

 private:
  class Service;
  Control();
  std::unique_ptr<Service> service_;
  struct Server;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // for a socket that was handed over
  std::string path_;                    // of the socket to remove; empty if it was handed over
};

}  // namespace xpud::service
