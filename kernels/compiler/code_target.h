// What code is made for. Values.
#pragma once

#include <charconv>
#include <compare>
#include <string>
#include <utility>

#include "kernels/api/launch.h"

namespace xpud::kernels {

// `processor`: of NVPTX, "sm_80" where empty. `has_doubles`: else they are computed with integers.
struct CodeTarget {
  CodeTarget(Target kind, std::string name = {},  // NOLINT(google-explicit-constructor): mostly a Target
             bool doubles = true)
      : target(kind),
        processor(name.empty() && kind == Target::kNvptx ? "sm_80" : std::move(name)),
        has_doubles(doubles) {}
  auto operator<=>(const CodeTarget&) const = default;

  // Returns N of an NVIDIA processor "sm_N" (also with a letter behind it); 0 of others.
  int ProcessorNumber() const {
    int number = 0;
    if (processor.starts_with("sm_"))
      std::from_chars(&processor[3], processor.data() + processor.size(), number);
    return number;
  }
  // Returns whether it can add 4 floats to memory in one instruction.
  bool AddsVectors() const { return ProcessorNumber() >= 90; }

  Target target;
  std::string processor;
  bool has_doubles;
};

}  // namespace xpud::kernels
