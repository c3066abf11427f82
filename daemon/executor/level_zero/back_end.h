// The properties of our driver library's back ends, known before any of them looks for devices. Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {

// Returns the kernel target for `code`, one of XPUD_CODE_....
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

  // Whether `device` ("auto", a kind or a back end's name) selects this back end.
  bool IsWanted(const std::string& device) const {
    return device == "auto" || device == name || device == kind;
  }
};

// Returns the back ends of our driver library, whether or not they have devices. Loads the library; does not
// look for devices.
absl::StatusOr<std::vector<BackEnd>> ListBackEnds(const std::string& driver_library);

}  // namespace xpud::executor
