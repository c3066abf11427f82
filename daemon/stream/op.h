// One op on its way to the device: decoded -> checked -> planned -> submitted. The stages are scratch that a
// device session reuses for each command. Values.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/handles/buffer_table.h"
#include "daemon/memory/pool.h"
#include "daemon/records/recorder.h"
#include "kernels/api/launch.h"
#include "kernels/api/op_call.h"
#include "proto/wire/decode.h"

namespace xpud::stream {

// As the client sent it: proto/wire/decode.h.
using DecodedOp = wire::DecodedExecute;

// Its handles are resolved, and the call fits its row: no kernel can leave its operands.
struct CheckedOp {
  // Outputs, then inputs, those that the client left out included. What follows is of earlier commands.
  std::vector<kernels::Operand> operands;
  std::vector<handles::Buffer*> buffers;  // of the operands; null for what is no tensor
  uint32_t outputs = 0, inputs = 0;
  // Lengths of the lists, once elements are left out, and the outputs of these elements.
  std::vector<uint16_t> lists;
  std::vector<std::pair<memory::Allocation*, memory::Fault>> skipped;
  kernels::OpCall call;  // refers to the vectors, and to those of the DecodedOp

  uint32_t count() const { return outputs + inputs; }
};

struct PlannedOp {
  kernels::LaunchList launches;
  std::vector<memory::Block> workspace;
};

// The command that a device session runs.
struct Command : records::Running {
  bool heavy = false;       // it may have taken long: read the clock
  bool takes_long = false;  // the device may be busy with it for long
  uint64_t helped_ns = 0;   // by cores that nothing else used, as time of the device
};

enum class Outcome {
  kDone,
  kStalled,  // it cannot run yet; try again later
  kStopped,  // interrupted so that other sessions get their turn; run it again, and it continues
};

}  // namespace xpud::stream
