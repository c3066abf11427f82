// A real xpud-gateway in front of a daemon, for tests. Killed with the object.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

namespace xpud::e2e {

class GatewayProcess {
 public:
  // Listens on a free port, with a token that this process then presents ($XPUD_TOKEN_FILE). Aborts the test
  // program with the gateway's log if it does not start.
  GatewayProcess(const std::string& directory, const std::string& daemon_socket,
                 const std::vector<std::string>& arguments = {});
  ~GatewayProcess() { Kill(); }
  GatewayProcess(const GatewayProcess&) = delete;
  GatewayProcess& operator=(const GatewayProcess&) = delete;

  const std::string& address() const { return address_; }
  const std::string& token_file() const { return token_file_; }
  int pid() const { return pid_; }
  void Kill(int signal = SIGKILL);
  std::string Log() const;

 private:
  std::string directory_, token_file_, address_;
  int pid_ = -1;
};

}  // namespace xpud::e2e
