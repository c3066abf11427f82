// What kernels report in error words (kernels/api/op_call.h), as the client is told of it. An asynchronous
// device reports later than its command ran, so what names the command is kept apart from it. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/api/op_call.h"

namespace xpud::stream {

// Who may report.
struct Reporter {
  std::string name;             // the call, or "loop kernel NAME"; not empty
  bool is_loop_kernel = false;  // it reports in the form of loop kernels

  static Reporter Of(const kernels::OpCall& call);
};

// Returns whether a kernel of the call may report something.
bool MayReport(const kernels::OpCall& call);

// `word`: what a kernel has reported; not 0.
absl::Status ErrorOf(uint64_t word, const Reporter& reporter);

}  // namespace xpud::stream
