// What code is made for. Values.
#pragma once

#include <charconv>
#include <string>
#include <utility>

#include "kernels/api/launch.h"

namespace xpud::kernels {

// `processor`: of NVPTX, "sm_80" where empty.
struct CodeTarget {
  CodeTarget(Target kind, std::string name = {})  // NOLINT(google-explicit-constructor): mostly a Target
      : target(kind), processor(name.empty() && kind == Target::kNvptx ? "sm_80" : std::move(name)) {}
  bool operator==(const CodeTarget&) const = default;

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
};

}  // namespace xpud::kernels
