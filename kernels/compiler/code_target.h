// What code is made for. Values.
#pragma once

#include <string>
#include <utility>

#include "kernels/api/launch.h"

namespace xpud::kernels {

// `processor`: of NVPTX, "sm_80" where empty.
struct CodeTarget {
  CodeTarget(Target kind, std::string name = {})  // NOLINT(google-explicit-constructor): mostly a Target
      : target(kind), processor(name.empty() && kind == Target::kNvptx ? "sm_80" : std::move(name)) {}
  bool operator==(const CodeTarget&) const = default;

  Target target;
  std::string processor;
};

}  // namespace xpud::kernels
