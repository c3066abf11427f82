// The common parts of this folder's tests: a daemon, an innocent client, and the daemon's resources.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/isolation/child.h"
#include "tests/conformance/isolation/hostile_session.h"
#include "tests/conformance/isolation/innocent.h"
#include "tests/e2e/daemon_process.h"

namespace xpud::isolation {

// The daemon's resources, from the kernel and from xpuctl.
struct Vitals {
  int64_t resident_bytes = 0;  // its own memory; not what it shares with clients
  int64_t files = 0;
  int64_t threads = 0;
  int64_t children = 0;
  int64_t mappings = 0;
  int64_t memory_used = 0;  // of the devices
  int64_t sessions = 0;

  static Vitals Of(const e2e::DaemonProcess& daemon);
};

// Whether the process runs; a zombie does not.
bool IsAlive(pid_t pid);

// Whether slow tests run completely: $XPUD_TEST_FULL, which `tools/test --full` sets.
bool InFull();

// Whether clients use a gateway: $XPUD_TEST_REMOTE.
bool IsRemote();

// For matchers, which do not support Abseil's string_view.
inline std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

class Isolation : public ::testing::Test {
 protected:
  static constexpr int64_t kMiB = 1 << 20;

  explicit Isolation(const std::vector<std::string>& flags = {});
  ~Isolation() override;  // prints the daemon's log if the test failed
  // Checks that the innocent client continues, and that the daemon's resources return to their earlier values
  // within seconds.
  struct Growth {
    int64_t resident = 8 * kMiB, mappings = 64;
  };
  // For a daemon that compiled a few hundred kernels.
  static constexpr Growth kOfKernels = {32 * kMiB, 1500};
  void ExpectAsBefore() { ExpectAsBefore(Growth()); }
  void ExpectAsBefore(const Growth& growth);
  // The address for clients: the daemon's socket or, with $XPUD_TEST_REMOTE, a gateway's HOST:PORT.
  const std::string& socket() const { return daemon_.address(); }

  e2e::DaemonProcess daemon_;
  Innocent innocent_;
  Vitals before_;
};

}  // namespace xpud::isolation
