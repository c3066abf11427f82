// What our driver library says of its back ends before any of them looks for devices. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {

// The code that devices of a back end run: `code` is one of XPUD_CODE_....
inline kernels::Target TargetOf(uint32_t code) {
  if (code == XPUD_CODE_HOST) return kernels::Target::kHost;
  return code == XPUD_CODE_PTX ? kernels::Target::kNvptx : kernels::Target::kSpirv;
}

// See xpud_back_end_t in proto/base/ze_ext.h.
struct BackEnd {
  std::string name;
  std::string kind;
  kernels::Target target = kernels::Target::kHost;
  bool own_process = false;
  uint32_t append_threads = 1;

  // Whether `device` ("auto", a kind or a back end's name) asks for its devices.
  bool IsWanted(const std::string& device) const {
    return device == "auto" || device == name || device == kind;
  }
};

// The back ends of our driver library, whether or not there are devices for them. Loads the library; looks
// for no device.
absl::StatusOr<std::vector<BackEnd>> ListBackEnds(const std::string& driver_library);

// From now on, also in child processes, drivers look for devices of these back ends only.
void UseBackEnds(const std::vector<std::string>& names);

}  // namespace xpud::executor
